"""Pure functions over a run: what the numbers mean and how sure we may be of them."""
