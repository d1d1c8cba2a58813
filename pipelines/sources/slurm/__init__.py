"""Jobs, nodes and places from Slurm, saved or live."""
