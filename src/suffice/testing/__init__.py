"""Public test doubles, trace makers and conformance checks."""
