"""One page that loads nothing, and the markup it is made of."""
