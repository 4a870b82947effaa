"""Rules and methods that decide when to stop."""
