"""`python -m model_profiling` is `sme2-kit`."""

from model_profiling.cli.process import enter

if __name__ == "__main__":
    enter()
