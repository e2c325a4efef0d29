"""Where a program loses accuracy, layer by layer."""
