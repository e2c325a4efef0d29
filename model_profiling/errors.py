"""The only way the kit fails: a sentence that says what is wrong, one that says what to do, and an exit code."""


class KitError(Exception):
    """A failure written for the person who meets it. Raise one of the subclasses, which fix the exit code."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class GateError(KitError):
    """A check the user asked for did not hold."""

    exit_code = 1


class InputError(KitError):
    """Something the user gave (a flag, a config, a file) is wrong."""

    exit_code = 2


class SetupError(KitError):
    """Something this machine needs is missing or broken."""

    exit_code = 3


class InterruptionError(KitError):
    """The user, or the system, ended a command early; as shells report it."""

    exit_code = 130


class RunError(KitError):
    """A model was run and the run failed."""

    exit_code = 4
