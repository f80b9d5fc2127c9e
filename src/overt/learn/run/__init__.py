"""A run's folder: checkpoints, logs, records, the finished model."""
