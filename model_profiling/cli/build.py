"""`sme2-kit build`: build the runner for this machine, or check that it builds for another."""

import argparse
import time

from model_profiling.base.printing import tell
from model_profiling.cli.answer import answer

HELP = "build the native runner (done automatically when needed)"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target", metavar="TARGET", help="linux-x86_64, linux-aarch64 or macos-arm64; default: this machine"
    )
    parser.add_argument(
        "--executorch",
        metavar="VERSION|PATH",
        help="a release such as 1.5.0, or the install prefix of a build of your own (default: the installed release)",
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


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
