"""`sme2-kit mcp`: serves the kit's verbs as typed tools to an assistant, over standard input and output."""

import argparse
from pathlib import Path

HELP = "serve the kit's commands as tools for assistants (Model Context Protocol, stdio)"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workspace", type=Path, default=Path(), metavar="DIR", help="no path may leave it (default: .)"
    )


def run(args: argparse.Namespace) -> int:
    from model_profiling.base.errors import InputError, SetupError
    from model_profiling.base.installation import install_command

    if not args.workspace.is_dir():
        raise InputError(f"workspace {args.workspace} is not a directory", "Give one that exists.")
    try:
        from model_profiling.mcp_server.server import build_server
    except ModuleNotFoundError as error:
        raise SetupError(f"serving needs {error.name}, which is not installed", install_command("mcp")) from error
    build_server(args.workspace).run("stdio")
    return 0
