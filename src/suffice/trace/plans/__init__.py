"""The plan trace: what a planning agent leaves behind, its rows and its file."""
