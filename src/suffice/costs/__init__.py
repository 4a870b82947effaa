"""From usage to cost."""
