"""What the commands print: a table for a person, JSON for a machine."""

from model_profiling.analysis.categories import CategoryTable
from model_profiling.derived import Outdated, notes
from model_profiling.report import results, terminal
from model_profiling.run_directory import RunDirectory
from model_profiling.saying import say_json, warn


def show_run(directory: RunDirectory, as_json: bool, table: CategoryTable | None = None) -> None:
    """Analyse a run directory, write what derives from it, and print it; say which earlier files that outdates."""
    outdated: list[Outdated] = []
    analysed = results.refreshed(directory, table, outdated.append)
    print_notes(notes(outdated))
    if as_json:
        print_json(analysed.summary)
    else:
        terminal.show_run(directory, directory.manifest(), analysed.summary)


def print_notes(sentences: list[str]) -> None:
    warn("".join(f"note: {sentence}\n" for sentence in sentences))


def print_json(value: object) -> None:
    say_json(value)
