"""The Kalman filter, its smoother and its slope, compiled."""
