"""Which setting pays best: draft lengths, allocations and cascades."""
