"""What a table or figure is made of, the graph of its runs, and their start, here or on Slurm."""
