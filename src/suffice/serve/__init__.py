"""Adaptive answering and decisions over HTTP; loaded by ``suffice serve`` alone."""
