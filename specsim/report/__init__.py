"""Rows in, text or figures out."""
