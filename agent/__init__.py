"""Learners, objectives and skills; `agent.runner` is the one place where they meet."""
