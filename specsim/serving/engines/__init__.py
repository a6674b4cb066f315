"""Engines: what their schedulers are told, in their own words, and what they then do."""
