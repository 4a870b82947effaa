"""The evaluation of MiCP (paper 3)."""
