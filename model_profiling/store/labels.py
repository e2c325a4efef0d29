"""What is said of a run so that it can be found again among many: the user's labels, the revision of their code, the
device. None of it changes what is measured."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from model_profiling.base.errors import InputError
from model_profiling.store.artifacts import ExportRecord

# What a run can be called: a file name on every system.
RUN_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_MOST_LABELS = 32
_MOST_TEXT = 200
_GIT_S = 5.0
# A program of the repository's own through which git reads files, which it would start to see whether they differ.
_OWN_FILTER = re.compile(r"^(local|worktree)\s+filter\.", re.MULTILINE)
# Where CI systems say it: GitHub, GitLab, Buildkite, Jenkins, CircleCI, Azure, Bitbucket. Of a pull request, GitHub
# names the branch in GITHUB_HEAD_REF.
_COMMITS = (
    *("GITHUB_SHA", "CI_COMMIT_SHA", "BUILDKITE_COMMIT", "GIT_COMMIT", "CIRCLE_SHA1", "BUILD_SOURCEVERSION"),
    "BITBUCKET_COMMIT",
)
_BRANCHES = (
    *("GITHUB_HEAD_REF", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME", "BUILDKITE_BRANCH", "GIT_BRANCH", "CIRCLE_BRANCH"),
    *("BUILD_SOURCEBRANCHNAME", "BITBUCKET_BRANCH"),
)


class Revision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of code: '' is not known. `dirty`: files differed from the commit; None is not known."""

    commit: str = ""
    branch: str = ""
    dirty: bool | None = None


def checked_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return `labels` if all of them can be kept and shown."""
    if len(labels) > _MOST_LABELS:
        raise InputError(f"{len(labels)} labels are too many", f"Give up to {_MOST_LABELS} of them.")
    for key, value in labels.items():
        if not _KEY.fullmatch(key):
            hint = "Use up to 40 letters, digits and _ . -, beginning with a letter or digit."
            raise InputError(f"{key[:80]!r} cannot be the key of a label", hint)
        if not 0 < len(value) <= _MOST_TEXT or not value.isprintable():
            hint = f"Give one line of up to {_MOST_TEXT} characters."
            raise InputError(f"the value of the label {key!r} is empty, too long or has control characters", hint)
    return dict(labels)


def split_labels(words: Iterable[str]) -> tuple[str | None, dict[str, str]]:
    """Return what `--label` was given: at most one NAME, which is that of the run, and any number of KEY=VALUE."""
    name: str | None = None
    labels: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            if name is not None:
                what = f"a run has one name, and both {name[:80]!r} and {word[:80]!r} were given as --label"
                raise InputError(what, "Give one NAME; others as KEY=VALUE.")
            name = word
        elif key in labels:
            raise InputError(f"the label {key!r} is given twice", "Give each key once.")
        else:
            labels[key] = value
    return name, checked_labels(labels)


def revision(labels: Mapping[str, str]) -> Revision:
    """Return the commit and branch: of the labels, else of the CI system, else of git here."""
    commit, branch, dirty = _from_git()
    ci_commit, ci_branch = _variable(_COMMITS), _variable(_BRANCHES)
    if ci_commit and commit and ci_commit != commit:
        dirty = None  # git looked at another commit than the one that the CI system is about
    said = labels.get("commit") or ci_commit or commit, labels.get("branch") or ci_branch or branch
    return Revision(said[0][:_MOST_TEXT], said[1][:_MOST_TEXT], None if "commit" in labels else dirty)


def model_revision(export: ExportRecord | None, pte: Path) -> Revision:
    """Return the commit that the model's code is at, else its .pte: its repository need not be that of the working
    directory. Whether files differ is not asked: that may run programs of a repository that is not the user's."""
    request = export.request if export is not None else None
    source = Path(request.directory, request.target.rpartition(":")[0]) if request and request.origin == "file" else pte
    commit, branch = _head(source.absolute().parent)
    return Revision(commit[:_MOST_TEXT], branch[:_MOST_TEXT])


def _variable(names: Iterable[str]) -> str:
    return next((value for name in names if (value := os.environ.get(name, "")) and value.isprintable()), "")


def _from_git() -> tuple[str, str, bool | None]:
    commit, branch = _head(Path())
    settings = _git("config", "--list", "--show-scope") if commit else None
    if settings is None or _OWN_FILTER.search(settings):
        return commit, branch, None
    changed = _git("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    return commit, branch, None if changed is None else bool(changed)


def _head(folder: Path) -> tuple[str, str]:
    words = (_git("-C", str(folder), "rev-parse", "HEAD", "--abbrev-ref", "HEAD") or "").split()
    return (words[0], "" if words[1] == "HEAD" else words[1]) if len(words) == 2 else ("", "")


def _git(*words: str) -> str | None:
    """Return what git answers; None if there is no git, no repository, or no answer in time. No program that a
    repository names is started: to watch its files, or to fetch what is missing."""
    from model_profiling.base.programs import StartError, TimedOutError, run_program

    settings = ("-c", "core.fsmonitor=false", "-c", "safe.bareRepository=explicit")
    environment = {**os.environ, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    try:
        done = run_program(
            ["git", *settings, "--no-optional-locks", *words], timeout_s=_GIT_S, doing="", env=environment
        )
    except (StartError, TimedOutError, ValueError):
        return None
    return done.stdout if done.returncode == 0 else None


def device_name(environment: Mapping[str, object], identity: str = "") -> str:
    """Return one device, or machines that are alike: CPU, cores, memory, and a mark of what else differs."""
    import hashlib

    cpu = environment.get("cpu") or environment.get("arch") or "unknown CPU"
    parts = [str(cpu)]
    if isinstance(cores := environment.get("cores"), int):
        parts.append(f"{cores} CPUs")
    if isinstance(memory := environment.get("memory_bytes"), int):
        parts.append(f"{memory / 2**30:.0f} GiB")
    mark = f" #{hashlib.sha256(identity.encode()).hexdigest()[:8]}" if identity else ""
    return ", ".join(parts) + mark
