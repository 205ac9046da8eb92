"""Skills in mazes: episodes, measures, pictures."""
