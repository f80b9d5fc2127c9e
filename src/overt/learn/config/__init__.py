"""What a run is told: the recipe and its settings."""
