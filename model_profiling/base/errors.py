"""The only way the kit fails: a sentence that says what is wrong, one that says what to do, and an exit code."""

from typing import Any, TypeVar

from model_profiling.base.visible import visible

Error = TypeVar("Error", bound="KitError")


def shortly(error: BaseException) -> str:
    """Return what an error is, in one line."""
    said = next(iter(str(error).strip().splitlines()), "")[:300]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


class KitError(Exception):
    """A failure written for the person who meets it. Raise one of the subclasses, which fix the exit code."""

    exit_code = 1
    # How the runner ended if that is what failed: its exit code (see runner/protocol.py), negative for a signal.
    runner_exit: int | None = None

    def __init__(self, message: str, hint: str = "") -> None:
        # Both quote names and files of others.
        super().__init__(visible(message))
        self.message = visible(message)
        self.hint = visible(hint)

    def within(self: Error, where: str) -> Error:
        """Return the same error with `where` before its message: its class, exit code, hint and attributes stay."""
        error = _restored(type(self), self.args, vars(self))
        error.message = f"{visible(where)}: {self.message}"
        error.__cause__ = self
        return error

    def names(self, path: object) -> bool:
        """Return whether it sends the reader to this file."""
        return visible(str(path)) in f"{self.message} {self.hint}"

    def moved(self, before: object, after: object) -> None:
        """Name files where they are now: what was below `before` is below `after`."""
        old, new = visible(f"{before}/"), visible(f"{after}/")
        self.message, self.hint = (text.replace(old, new) for text in (self.message, self.hint))

    def __str__(self) -> str:
        # With what was added to it since.
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses have constructors of their own: calling one with `args`, as copy and pickle would, garbles it.
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[Error], args: tuple[Any, ...], attributes: dict[str, Any]) -> Error:
    """Return an error as it was, without a call of its constructor."""
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


class GateError(KitError):
    """A check the user asked for did not hold."""

    exit_code = 1


class InputError(KitError):
    """Something the user gave (a flag, a config, a file) is wrong."""

    exit_code = 2


class FormatError(InputError):
    """A file is not of the format that a reader takes, or not a whole one; each reader has a subclass of its own."""

    format = ""
    usual_hint = "Export the model again; if the file was copied, copy it again."

    def __init__(self, path: object, problem: str, offset: int | None = None, hint: str = "") -> None:
        where = "" if offset is None else f" at byte {offset}"
        super().__init__(f"{path} is not a readable {self.format}: {problem}{where}", hint or self.usual_hint)


class SetupError(KitError):
    """Something this machine needs is missing or broken."""

    exit_code = 3


class OutputError(SetupError):
    """Standard output cannot be written."""


class UnreadError(OutputError):
    """Whoever read standard output has left: as shells report a program that such a pipe ended (SIGPIPE)."""

    exit_code = 141


class InterruptionError(KitError):
    """The user, or the system, ended a command early; as shells report it."""

    exit_code = 130


class RunError(KitError):
    """A model was run and the run failed."""

    exit_code = 4
