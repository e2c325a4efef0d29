"""Print the JSON Schema of a config, for an editor, or of a result, for a program."""

import argparse

from model_profiling.api.definition import takes
from model_profiling.base.errors import InputError
from model_profiling.base.printing import say, tell

TAKES = takes(more="name=SchemaName?")
EXAMPLE = "sme2-kit schema config"
EPILOG = "An editor finds it by the key $schema: `sme2-kit schema config > config.schema.json`."


def run(args: argparse.Namespace) -> None:
    from model_profiling.schemas.contracts import schema_named, schema_names, text_of

    names = schema_names()
    if args.name is None:
        tell("".join(f"{name:<18}{of}\n" for name, of in names.items()))
    elif args.name in names:
        say(text_of(schema_named(args.name)))
    else:
        raise InputError(f"there is no schema {args.name!r}", "`sme2-kit schema` lists them.")
