"""Narasimhan24: speculative cascades, quality against deferral."""
