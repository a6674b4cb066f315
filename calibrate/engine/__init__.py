"""A real inference engine: made ready, started, asked over HTTP, and stopped."""
