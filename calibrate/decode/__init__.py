"""Real decoders on real models, one scheme a file, every run counted."""
