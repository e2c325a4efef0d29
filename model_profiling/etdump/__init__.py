"""ETDump bytes to numpy columns; knows nothing of torch or executorch."""
