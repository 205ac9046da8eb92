"""EDL's mazes: geometry, the vectorised core, episodes side by side, measures, and the gymnasium
environments.

Importing this package registers them: gymnasium.make("envs.maze:amped/TreeMaze-v0").
"""

from envs.maze.env import IDS, MazeEnv

__all__ = ["IDS", "MazeEnv"]
