"""What signals and confidences say about right and wrong answers."""
