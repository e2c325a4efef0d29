"""From a config to a run directory: what to run, in which order, on which platform, and what to keep of it."""
