"""Real models: loading, shapes, sampling, prompts and the machine they run on."""
