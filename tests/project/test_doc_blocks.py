"""Every command block of the documentation that can run here, in order, in a fresh workspace.

`make test` runs the fast blocks, each text once; `make test-docs` (SME2_KIT_ALL_DOCS=1) runs all, repetitions too.
"""

import os
import sys
import time

import pytest

from model_profiling.platforms.local import local_name
from tests.helpers.doc_blocks import blocks
from tests.helpers.workspace import shared_workspace, shell

ALL = bool(os.environ.get("SME2_KIT_ALL_DOCS"))


def test_the_blocks_run_in_order_in_a_fresh_workspace(tmp_path_factory: pytest.TempPathFactory) -> None:
    workspace = shared_workspace(tmp_path_factory)
    seen: set[str] = set()
    for block in blocks():
        wanted = not block.word or (ALL and block.word == "slow")
        if not wanted or (not ALL and block.script in seen):
            continue
        seen.add(block.script)
        began = time.monotonic()
        done = shell(block.script.replace("runs/linux", f"runs/{local_name()}"), workspace)
        assert done.returncode == 0, f"{block.name}\n{block.script}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        sys.stdout.write(f"{time.monotonic() - began:6.1f} s  {block.name}\n")
