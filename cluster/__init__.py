"""The runs of an experiment on a laptop, a server or Slurm: sweep.py."""
