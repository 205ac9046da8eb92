"""Scores: aggregates with intervals, tables beside the paper's, figures."""
