"""Measures how often drafts are accepted and what model runs cost, on real models."""
