"""Public test doubles, trace makers and strategies."""
