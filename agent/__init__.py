"""Methods, one file each, with what they share, how they learn and who chooses their skills. They
meet an environment in run/loop.py and nowhere else."""
