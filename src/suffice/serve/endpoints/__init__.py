"""What clients ask: answers as OpenAI speaks, decisions, and loops that are followed."""
