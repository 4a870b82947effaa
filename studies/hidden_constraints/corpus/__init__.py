"""The tasks and documents of the hidden-constraint benchmark, from a seed."""
