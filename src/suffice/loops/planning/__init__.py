"""The planning agent, its prompts, the parsing of its replies, and its recorder."""
