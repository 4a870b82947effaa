"""Show a replay's results: as a table in a terminal and as one self-contained HTML file."""
