"""Many models on many machines."""
