"""Damaged files of every kind and made-up command lines: an answer, or one line."""
