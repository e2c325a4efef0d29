"""SME2 ExecuTorch Profiling Kit: where a model's time goes, what acceleration changes, what to fix next."""

__version__ = "0.1.0"
