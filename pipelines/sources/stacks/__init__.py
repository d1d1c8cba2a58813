"""What ranks of a training job were doing: stack dumps and flight recorders."""
