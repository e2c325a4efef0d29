"""Connects to a Ray cluster without a token, in a process of its own; how it ends says whether it was let in.

python -m model_profiling.fleet.sweep.ray_auth_check ADDRESS
"""

import importlib
import sys
from typing import Any

from model_profiling.upstream import ray_worker

# How it ends if the cluster asks for a token.
REFUSED = 77


def main(address: str) -> int:
    exceptions: Any = importlib.import_module("ray.exceptions")
    try:
        ray_worker.ask_cluster(address)
    except exceptions.AuthenticationError:
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
