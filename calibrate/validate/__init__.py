"""Predicted beside measured: speedups, decoding schemes and batches."""
