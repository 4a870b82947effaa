"""Running a policy live: the controller and whatever answers with it."""
