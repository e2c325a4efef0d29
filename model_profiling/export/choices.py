"""What may be asked of an export; imports nothing heavy, so that the command line can list it at once."""

from model_profiling.base import dtypes, rewrites

DTYPES = dtypes.NAMES
REWRITES = tuple(sorted(rewrites.REWRITES))
REWRITE_HELP = "change the graph, not its results; " + "; ".join(rewrites.REWRITES[name].summary for name in REWRITES)
# What rewrites were called before, in commands, programs and records that are older than their names.
_EARLIER_NAMES = {"per-pixel": "layout"}


def rewrite_name(name: str) -> str:
    """Return what a rewrite is called today."""
    return _EARLIER_NAMES.get(name, name)
