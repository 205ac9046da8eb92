"""Run directories as data frames."""
