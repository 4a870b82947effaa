"""Results as plain-text tables."""
