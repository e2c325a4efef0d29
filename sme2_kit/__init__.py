"""The kit as a Python library."""

from sme2_kit.run import Run

__all__ = ["Run"]
