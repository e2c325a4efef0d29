"""PyTorch to .pte: the only folder, with models/, that imports torch or executorch."""
