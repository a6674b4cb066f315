"""Exact replay of recorded text: what every decoder is expected to run, from one text."""
