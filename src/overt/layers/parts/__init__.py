"""What several layers share."""
