"""The viewer of a record: its data as JSON, its page without a build step, and a static bundle."""
