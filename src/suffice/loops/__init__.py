"""The loops: what each round retrieves."""
