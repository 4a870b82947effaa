"""A planning agent, what it is told, how its words are read, and its recorder."""
