"""What a round asks the model, and how its reply is read."""
