"""Build the native runner (done automatically when needed)."""

import argparse
import time

from model_profiling.api.definition import takes
from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer

TAKES = takes(more="target=BuildTarget executorch=BuildExecuTorch json")
EXAMPLE = "sme2-kit build --target linux-aarch64"


def run(args: argparse.Namespace) -> int:
    from model_profiling.runner.build import build_runner

    start = time.monotonic()
    build = build_runner(args.target, executorch=args.executorch)
    seconds = time.monotonic() - start
    facts = {
        "runner": str(build.path),
        "target": build.target.name,
        "executorch": build.sdk.version,
        "compiler": build.compiler,
        "seconds": round(seconds, 2),
    }
    lines = [f"{key:<11} {value}{' s' if key == 'seconds' else ''}\n" for key, value in facts.items()]
    return answer(args, facts, lambda: tell("".join(lines)))
