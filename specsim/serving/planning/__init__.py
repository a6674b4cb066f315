"""Which set-up serves a workload within its levels at the least cost."""
