"""What the service and the viewer share of HTTP: bodies within limits, refusals, the guard at the door."""
