"""Renderers: one file per output, each a function of what analysis found."""
