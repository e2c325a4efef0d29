"""`sme2-kit schema NAME`: the JSON Schema of a file that the kit reads or writes, from its type."""

import argparse

from model_profiling.base.errors import InputError
from model_profiling.base.printing import say, tell

HELP = "print the JSON Schema of a config, for an editor, or of a result, for a program"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "An editor finds it by the key $schema: `sme2-kit schema config > config.schema.json`."
    parser.add_argument("name", nargs="?", metavar="NAME", help="config, sweep-file or a `kind`; without: list them")


def run(args: argparse.Namespace) -> int:
    from model_profiling.schemas.contracts import schema_named, schema_names, text_of

    names = schema_names()
    if args.name is None:
        tell("".join(f"{name:<18}{of}\n" for name, of in names.items()))
    elif args.name in names:
        say(text_of(schema_named(args.name)))
    else:
        raise InputError(f"there is no schema {args.name!r}", "`sme2-kit schema` lists them.")
    return 0
