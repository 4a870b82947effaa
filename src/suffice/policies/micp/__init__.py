"""MiCP (paper 3): conformal stopping, and answer sets with a promised coverage."""
