"""Data sets: readers of public formats, and questions about an invented world."""
