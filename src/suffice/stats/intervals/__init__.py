"""Bootstrap and simultaneous intervals, and what they are intervals of."""
