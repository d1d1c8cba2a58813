"""A site's list of inputs: what it may say, where files are, how each kind is read."""
