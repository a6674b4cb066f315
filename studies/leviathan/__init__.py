"""Leviathan23: acceptance, cost and the best draft length."""
