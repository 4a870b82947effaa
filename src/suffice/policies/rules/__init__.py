"""Rules: one line over signals that stops a loop, parsed and never run as code."""
