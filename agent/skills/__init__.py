"""Who chooses the skill: sources that follow a rule, selectors that learn."""
