"""Models that read a batch of sequences of different lengths, and what decoding costs with them."""
