"""Kim23: a small model that may answer alone."""
