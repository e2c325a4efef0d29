"""The flags of language models: how many tokens each phase reads, and which."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model_profiling.pipeline.phase_experiments import Lengths


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("language models", "a .pte that reads tokens into a cache is run by phase")
    group.add_argument(
        "--prefill", type=int, metavar="N", help="tokens of the prompt, read at once; 0: none (default: 128)"
    )
    group.add_argument(
        "--decode", type=int, metavar="N", help="tokens after it, read one by one; 0: none (default: 32)"
    )
    group.add_argument(
        "--depth",
        type=depths,
        metavar="N[,N...]",
        help="tokens in the cache before decode; several show how it slows down (default: those of --prefill)",
    )
    group.add_argument(
        "--tokens", type=Path, metavar="FILE", help="what is read: a .npy of int64 token ids (default: random)"
    )


def depths(text: str) -> tuple[int, ...]:
    """Return `0,128,1024` as numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} are no numbers of tokens, such as 128 or 0,128,1024") from None


def lengths(args: argparse.Namespace) -> "Lengths":
    """Return what the user asked for, checked."""
    from model_profiling.pipeline.phase_experiments import checked_lengths

    return checked_lengths(args.prefill, args.decode, args.depth or (), lambda name: f"--{name}")


def given(args: argparse.Namespace) -> bool:
    """Return whether any of the flags was used."""
    return any(value is not None for value in (args.prefill, args.decode, args.depth, args.tokens))
