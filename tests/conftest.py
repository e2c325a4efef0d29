"""What tests share: the real runner, real exports of toy_cnn, and the rule that CI may not skip."""

import contextlib
import fcntl
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests.helpers import distorted_clock, durations, warm, warm_drawing
from tests.helpers.waiting import LONGEST_S

ROOT = Path(__file__).resolve().parents[1]
DTYPES = ("fp32", "fp16", "int8")
# Fixtures that compile the runner or export: `make check` leaves out what needs them.
BUILDING = {"runner", "exported"}
# How the reason of a skip begins that no installation mends.
HARDWARE = "hardware: "
# Commands that import torch.
EXPORTING = ("check", "export", "numerics", "profile", "roofs", "tune")
# Without it, what needs no export still runs: programs that another Python has exported are taken, if there are some.
TORCH = importlib.util.find_spec("torch") is not None
# Unless AGAIN=yes, what holds with more data what other tests hold is left out; where all of it is one test, most of
# its data, the same each time.
SAMPLED = os.environ.get("AGAIN") != "yes"
# Tests that do not judge a verdict need no long measurement.
QUICK = {"SME2_KIT_BUDGET_S": "0.1"}
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Ctrl-C, and so would every process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Readline, which pytest loads, tells every process that it starts how wide the terminal is: none, here.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
# On a busy machine any example may take long.
hypothesis.settings.register_profile(
    "patient",
    hypothesis.settings(),
    deadline=None,
    max_examples=25 if SAMPLED else 100,
    derandomize=SAMPLED,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Each worker has one processor; torch would start threads for all of them.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def needs(available: bool, what: str) -> None:
    """Go on if `what` is installed, else skip, which CI does not accept (see below)."""
    if not available:
        pytest.skip(f"{what} is not installed")


def needs_hardware(available: bool, what: str) -> None:
    """Go on if this machine is of the kind the test is about; CI cannot install another."""
    if not available:
        pytest.skip(f"{HARDWARE}{what}")


def processes_naming(text: str) -> list[str]:
    """The processes with `text` in their command line; a system that lists none in /proc has pgrep."""
    if not Path("/proc/self").exists():
        return subprocess.run(["pgrep", "-f", text], capture_output=True, text=True, check=False).stdout.split()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if text in path.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(path.parent.name)
    return found


def needs_emulator() -> None:
    """Go on if SME2 kernels can be run here under QEMU."""
    from model_profiling.platforms.emulator import NEEDED, find_qemu
    from model_profiling.runner.sdk import TARGETS, host_target

    qemu = find_qemu()
    needs(qemu is not None and qemu.version >= NEEDED, "a QEMU that knows SME2 (install_emulator.sh)")
    target = TARGETS["linux-aarch64"]
    needs(host_target() == target or shutil.which(target.cross_compiler[0]) is not None, target.cross_compiler[0])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--warm",
        choices=("all", "exports", "none"),
        default="exports",
        help="fork from a process that has torch loaded: workers and commands, commands that export, or nothing",
    )
    parser.addoption("--record-durations", action="store_true", help="write what files took to tests/durations.json")


@pytest.hookimpl(trylast=True)  # after the plugin that makes the session's directory
def pytest_configure(config: pytest.Config) -> None:
    workers = getattr(config.option, "tx", None)
    _warm.append(config.option.warm)
    if config.option.warm == "all" and workers and warm.available() and "PYTEST_XDIST_WORKER" not in os.environ:
        home = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        # Read like words of a shell: a temporary directory may have spaces in its name.
        python = shlex.quote(str(warm.python(home, of_children=False)))
        config.option.tx = [f"popen//python={python}"] * len(workers)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Tests of one file share costly fixtures, and so a worker (--dist loadfile).
    durations.longest_first(items)
    for item in items:
        if BUILDING & set(getattr(item, "fixturenames", ())):
            item.add_marker("builds")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that asks for torch where there is none is skipped: which do is found out by running them."""
    report = yield
    if not TORCH and call.excinfo is not None and _asks_for_torch(call.excinfo.value):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, "Skipped: torch is not installed")
    return report


def _asks_for_torch(error: BaseException | None) -> bool:
    from model_profiling.base.errors import SetupError

    if isinstance(error, ModuleNotFoundError):
        return (error.name or "").split(".")[0] == "torch"
    if isinstance(error, SetupError) and "torch" in error.message:
        return True
    return error is not None and _asks_for_torch(error.__cause__ or error.__context__)


def _skipped(reporter: Any) -> Iterator[tuple[str, str]]:
    """Yield each test that was skipped, and why."""
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        yield report.nodeid, reason.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was not tested here; name the tests that need other hardware, which no installation runs."""
    why = defaultdict[str, list[str]](list)
    for test, reason in _skipped(terminalreporter):
        why[reason].append(test)
    for reason, tests in sorted(why.items()):
        named = f": {', '.join(tests)}" if reason.startswith(HARDWARE) else ""
        terminalreporter.write_line(f"not tested here, {reason}: {len(tests)}{named}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skip is a failure, unless its reason is the hardware, or what CI hides from this session."""
    accepted = "|".join(filter(None, [HARDWARE, os.environ.get("CI_HIDES")]))
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and session.config.option.record_durations:
        durations.record(report for reports in reporter.stats.values() for report in reports)
    if not os.environ.get("CI") or reporter is None:
        return
    for test, reason in _skipped(reporter):
        if not re.search(accepted, reason):
            reporter.write_line(f"CI may not skip {test}: {reason}", red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


_session_home: list[Path] = []
_warm: list[str] = []


@pytest.fixture(scope="session", autouse=True)
def session_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.getbasetemp()
    # Whoever runs the tests may have measured this machine, and then its reports say more.
    os.environ["SME2_KIT_ROOFS"] = str(base / "no_roofs")
    # Times mean nothing here, whether the machine is busy or not.
    os.environ["SME2_KIT_REUSE_BUSY"] = "yes"
    # Workers measure side by side, and nobody else on this machine waits for them.
    os.environ["SME2_KIT_LOCKS"] = str(base / "locks")
    _session_home.append(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)
    # What the runner measures in a test means nothing: no assertion can depend on it (tests/measurements apart).
    os.environ.update(distorted_clock.environment(shared_home(), "c++"))
    if _warm == ["all"] and warm.available():
        warm_drawing.draw_at(warm.drawing_address(shared_home()))


def shared_home() -> Path:
    """A directory that all workers of a session have in common."""
    return _session_home[0]


@pytest.fixture(scope="module", autouse=True)
def fresh_caches() -> Iterator[None]:
    """Nothing that a file of tests had the kit remember is there in the next one."""
    yield
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("model_profiling", "sme2_kit"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and value.__module__ == name:
                    value.cache_clear()


@pytest.fixture(scope="session")
def runner() -> Path:
    from model_profiling.runner.build import build_runner

    return build_runner().path


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> dict[str, Any]:
    """toy_cnn in each dtype, in one directory, as a user who tries them one after another would have it.

    Exported once for all workers and sessions, unless the kit's own cache says that something changed.
    """
    from model_profiling.base.files import read_json
    from model_profiling.export.cache import cached
    from model_profiling.export.request import ExportRequest, ExportResult
    from model_profiling.store.artifacts import ExportMeta

    store = kept(pytestconfig, tmp_path_factory.getbasetemp(), "exports")
    with (store / ".tests-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for dtype in DTYPES:
            request = ExportRequest("toy_cnn", store / "toy_cnn", dtype, save_graph=True)
            if TORCH and cached(request) is None:
                from model_profiling.export.exporter import export

                export(request)
        needs((store / "toy_cnn").is_dir(), "torch")
        outdir = tmp_path_factory.mktemp("toy") / "artifacts"
        shutil.copytree(store / "toy_cnn", outdir)
    paths = {dtype: ExportRequest("toy_cnn", outdir, dtype).paths for dtype in DTYPES}
    records = read_json(paths["fp32"].meta, ExportMeta, "export record").exports
    return {dtype: ExportResult(paths[dtype], records[paths[dtype].stem]) for dtype in DTYPES}


def kept(config: pytest.Config, otherwise: Path, name: str) -> Path:
    """A directory that is there again in the next session; where pytest keeps none, one in `otherwise`."""
    cache = getattr(config, "cache", None)  # there is none with -p no:cacheprovider
    if cache is not None:
        return Path(cache.mkdir(name))
    (otherwise / name).mkdir(exist_ok=True)
    return otherwise / name


def tune_home(config: pytest.Config, otherwise: Path) -> Path:
    """Where `tune` works on toy_cnn: its exports take longest, and the kit knows whether they still hold."""
    return kept(config, otherwise, "tune")


@pytest.fixture(scope="session")
def toy(exported: dict[str, Any]) -> Callable[[str], Path]:
    """The path of toy_cnn's .pte by dtype."""
    return lambda dtype: Path(exported[dtype].paths.pte)


@pytest.fixture(scope="session")
def measured_run(toy: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run directory of toy_cnn in fp16, acceleration on and off."""
    home = tmp_path_factory.mktemp("measured")
    done = kit("run", toy("fp16"), "--output-root", home / "run", "--runs", 40, "--quiet")
    assert done.returncode == 0, done.stderr
    return home / "run"


def kit(
    *arguments: object, cwd: Path | None = None, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `sme2-kit` as a user does, in a process of its own."""
    words = [str(argument) for argument in arguments]
    # Its page takes longer than a quick run; what is about it asks for it.
    words += ["--no-html"] if words[0] == "run" and not {"--html", "--no-html", "--help"} & {*words} else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUICK, **(env or {})}
    forked = words[0] in EXPORTING if _warm == ["exports"] else _warm == ["all"]
    if forked and warm.available():
        done = warm.run(shared_home(), ["-m", "model_profiling", *words], cwd, environment)
    else:
        command = [sys.executable, "-m", "model_profiling", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=LONGEST_S, check=False
        )
    needs(TORCH or done.returncode != 3 or "torch" not in done.stdout + done.stderr, "torch")
    return done


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Register models for one test only: what it adds is gone afterwards."""
    from model_profiling import models

    monkeypatch.setattr(models, "_registered", dict(models.registered_models()))
    return models.register_model
