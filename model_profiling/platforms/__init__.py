"""Where a model runs. Each platform is one file that keeps the protocol of `base.py`."""
