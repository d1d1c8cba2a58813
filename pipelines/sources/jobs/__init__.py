"""What jobs themselves write: their output and their training metrics."""
