"""Replay of policies on a record: stop rounds, scores, costs and paired intervals."""
