"""What commands share: where they print, what they read, and the models that they look into."""
