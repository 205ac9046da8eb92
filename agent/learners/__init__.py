"""How it learns: DDPG, PPO and its policies, gradient surgery, compiled updates."""
