"""Sweeps: models x dtypes x rewrites x threads x targets from one small file."""
