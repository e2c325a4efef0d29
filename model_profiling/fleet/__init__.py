"""Many runs: of many models, on many machines, over time."""
