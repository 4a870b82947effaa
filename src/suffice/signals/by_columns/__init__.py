"""Signals of all recorded rounds at once, a module for each family of ``suffice.signals``.

Each gives what the one-round form gives, bit for bit; loaded where records are read, never to decide live.
"""
