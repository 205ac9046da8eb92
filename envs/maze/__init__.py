"""EDL's mazes: geometry, dynamics, episodes side by side, measures, gymnasium environments.

Importing this package registers the environments: gymnasium.make("envs.maze:amped/TreeMaze-v0").
"""

from envs.maze.env import IDS, MazeEnv

__all__ = ["IDS", "MazeEnv"]
