"""Where code comes from: never from the working directory only because something was started there.

Somebody else's files may lie there, and a folder `pip` or a file `random.py` would be run. What is asked for by name
still is: a directory in PYTHONPATH, a model's file (models/user_file.py).

It needs `os` and `sys` alone, which Python has loaded before it looks anywhere.
"""

import os
import sys

_KIT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_RUN = (
    "import sys; sys.path[:] = {path!r}; del sys.argv[0]; "
    "import runpy; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)

# Since 3.13 Python itself imports modules before what `-c` says; 3.10 knows no such flag and imports none.
_SAFE = ("-P",) if sys.version_info >= (3, 11) else ()


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command `python -m module …` with what this process can import, but for the working directory."""
    return [sys.executable, *_SAFE, "-c", _RUN.format(path=safe_path()), module, *arguments]


def file_command(file: str) -> list[str]:
    """Return the command `python file`, with the packages that are installed."""
    return [sys.executable, *_SAFE, file]


def script_command(file: str) -> list[str]:
    """Return the command that runs a file which needs nothing but Python itself."""
    return [sys.executable, "-I", "-S", file]


def in_utf8() -> None:
    """Begin this program again where Python takes names of files for another text than UTF-8, which the kit writes.

    That is a locale without UTF-8 whose user has told Python not to use it all the same.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def safe_path() -> list[str]:
    """Return `sys.path` without the working directory, unless PYTHONPATH names it or the kit itself is in it."""
    here = _working_directory()
    named = {_KIT, *_absolute("PYTHONPATH")}
    kept = [entry for entry in sys.path if os.path.isabs(entry) and (entry in named or entry != here)]
    # Found in the working directory, the kit was found first.
    return kept if _KIT in kept else [_KIT, *kept]


def leave_working_directory_out() -> None:
    """Let neither this process nor one it starts take a module or a program from the working directory."""
    sys.path[:] = safe_path()
    here, typed = _working_directory(), os.environ.get("PATH", "").split(os.pathsep)
    # Named in full it was meant, whatever the working directory is.
    programs = [entry for entry in _absolute("PATH") if entry != here or here in typed]
    for name, entries in {"PATH": programs, "PYTHONPATH": _absolute("PYTHONPATH")}.items():
        os.environ.pop(name, None)
        # Set but empty, PATH would mean the working directory.
        if entries:
            os.environ[name] = os.pathsep.join(entries)


def _absolute(variable: str) -> list[str]:
    """Return the directories that a variable names, as they are called from anywhere; an empty entry names none."""
    here, entries = _working_directory(), filter(None, os.environ.get(variable, "").split(os.pathsep))
    named = [entry if os.path.isabs(entry) else os.path.normpath(os.path.join(here, entry)) for entry in entries]
    return [entry for entry in named if os.path.isabs(entry)]


def _working_directory() -> str:
    """Return '' if it is gone, from where nothing can be named."""
    try:
        return os.getcwd()
    except OSError:
        return ""
