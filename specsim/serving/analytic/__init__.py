"""Latency and throughput of one replica under load in milliseconds, without simulating it."""
