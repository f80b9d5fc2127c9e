"""What measuring on a GPU takes."""
