"""Order statistics that conformal prediction takes for thresholds."""
