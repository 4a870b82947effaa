"""Training of the small networks that are shipped."""
