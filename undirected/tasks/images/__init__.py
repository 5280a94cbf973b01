"""Images: one network that classifies, draws and completes pictures."""
