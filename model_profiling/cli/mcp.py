"""Serve the kit's commands as tools for assistants (Model Context Protocol, stdio)."""

import argparse
from pathlib import Path

from model_profiling.api.definition import takes
from model_profiling.base.errors import InputError, SetupError
from model_profiling.base.installation import install_command

TAKES = takes(more="workspace")
EXAMPLE = "sme2-kit mcp --workspace ."


def run(args: argparse.Namespace) -> None:
    workspace = args.workspace or Path()
    if not workspace.is_dir():
        raise InputError(f"workspace {workspace} is not a directory", "Give one that exists.")
    try:
        from model_profiling.mcp_server.server import build_server
    except ModuleNotFoundError as error:
        raise SetupError(f"serving needs {error.name}, which is not installed", install_command("mcp")) from error
    build_server(workspace).run("stdio")
