"""Readers of laws and traces: renewal, replay, Monte Carlo."""
