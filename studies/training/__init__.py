"""Training of the small networks that are shipped or trained by hand."""
