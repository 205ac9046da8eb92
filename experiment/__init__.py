"""What a table or figure is made of, the graph of its runs, and who makes them: this machine or
Slurm."""
