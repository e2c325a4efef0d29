"""The process `sme2-kit`: what holds before a command begins, what a signal does to it, and how it ends.

Nothing else is imported until the working directory is out of the way, and from then on Ctrl-C is two lines, too.
"""

import os
import sys

from model_profiling.base.code_path import in_utf8, leave_working_directory_out
from model_profiling.cli.interrupts import interrupt, interruption_code, listen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_AGAIN_S = 0.01
# What is finished by now is written: a thread or an exit function of a model that does not end is not waited for.
_ENDING_S = 10.0
_MOST_DIGITS = 5


def enter(*words: str, tool: str = "") -> "NoReturn":
    """Run the command line, after some `words`, or a `tool`, and end without taking everything apart.

    Ending as Python does takes a tenth of a short command once numpy is loaded.
    """
    code = 1
    try:
        in_utf8()
        leave_working_directory_out()
        listen(interrupt)
        sys.unraisablehook = _raise_again
        _open_streams()
        # Odd terminal sizes go: libraries read them as well, and fail.
        for name in ("COLUMNS", "LINES"):
            size = os.environ.get(name, "")
            if not (size.isdecimal() and len(size) <= _MOST_DIGITS and int(size) > 0):
                os.environ.pop(name, None)
        if tool:
            from model_profiling.cli import tools

            code = tools.main(tool)
        else:
            from model_profiling.cli import main

            code = main.main([*words, *sys.argv[1:]])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        _say(ended.code if isinstance(ended.code, str) else "")
    except KeyboardInterrupt:  # before the command began, or once more at its end
        code = interruption_code()
        _say("error: interrupted")
    except Exception as error:  # noqa: BLE001 - not even what reports errors could be loaded, or --debug asks for it
        if _asks_for_tracebacks():
            sys.excepthook(type(error), error, error.__traceback__)
        else:
            _say(f"error: sme2-kit cannot start: {error}")
    finally:
        _end(code)


def _say(line: str) -> None:
    if line:
        try:
            os.write(2, f"{line}\n".encode(errors="replace"))
        except OSError:
            return  # nobody is there to read it


def _raise_again(lost: "sys.UnraisableHookArgs") -> None:
    """Raise an interruption again that Python dropped while an object ended or a module was loaded."""
    import signal

    if isinstance(lost.exc_value, KeyboardInterrupt):
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    elif _asks_for_tracebacks():
        sys.__unraisablehook__(lost)


def _asks_for_tracebacks() -> bool:
    return "--debug" in sys.argv or bool(os.environ.get("SME2_KIT_DEBUG"))


def _open_streams() -> None:
    """Have all three streams, and let them take any text: a name may hold what the terminal cannot show.

    The number of a closed one would be that of the next file that is opened, and what is printed would get into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # What is printed fails, as it does where it was closed; what is said beside it is lost.
            handle = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            os.dup2(handle, number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _end(code: int) -> "NoReturn":
    import atexit
    import signal

    threads = sys.modules.get("threading")
    # One of them may be in the middle of something; else there is nothing left to interrupt.
    waits = threads is not None and threads.active_count() > 1
    listen(signal.SIG_DFL if waits else signal.SIG_IGN)
    from model_profiling.base.errors import OutputError
    from model_profiling.base.printing import flush, warn

    try:
        flush()
    except OutputError as error:
        code = code or error.exit_code
        warn(f"error: {error.message}\n  fix: {error.hint}\n" if error.hint else "")
        # Python would try again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
    signal.setitimer(signal.ITIMER_REAL, _ENDING_S)
    if threads is not None:  # Python itself has no handler of signals any more while it takes everything apart
        threads._shutdown()
    atexit._run_exitfuncs()
    os._exit(code)
