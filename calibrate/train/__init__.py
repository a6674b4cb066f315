"""Training of the embedded family."""
