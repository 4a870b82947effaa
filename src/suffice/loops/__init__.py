"""The loops that come with Suffice: what each round retrieves."""
