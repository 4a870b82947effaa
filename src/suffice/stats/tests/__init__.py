"""p-values, multiple testing, exact tails and e-processes."""
