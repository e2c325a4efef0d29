"""Sweeps on a real Ray cluster of two nodes: what a killed node or worker had is done again, never twice at once."""

import contextlib
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from model_profiling.fleet.sweep import sweep as journal
from model_profiling.platforms import locks
from tests.conftest import QUICK, ROOT, needs
from tests.fleet.test_sweep import FEW
from tests.helpers.waiting import LONGEST_S, until

pytestmark = pytest.mark.wide
RAY = Path(sys.executable).with_name("ray")


@dataclass
class Cluster:
    address: str
    environment: dict[str, str]
    nodes: "list[subprocess.Popen[bytes]]"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(home: Path, count: int, more: dict[str, str], on_nodes: str = "") -> Iterator[Cluster]:
    """A cluster of nodes that are processes here; `on_nodes` is where only they look for modules first."""
    needs(RAY.exists(), "ray (extra fleet)")
    # Paths of sockets must be short.
    scratch = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    environment = {**os.environ, **QUICK, "PYTHONPATH": str(ROOT), locks.VARIABLE: str(home / "locks"), **more}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(scratch), "TMPDIR": str(scratch)}
    port = free_port()
    common = ["--node-ip-address=127.0.0.1", "--num-cpus=1", '--resources={"local": 1}', "--disable-usage-stats"]
    common += ["--object-store-memory=80000000", "--block"]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={scratch}"]
    theirs = environment | ({"PYTHONPATH": f"{on_nodes}{os.pathsep}{ROOT}"} if on_nodes else {})
    nodes: list[subprocess.Popen[bytes]] = []
    try:
        for words in [head, *([f"--address=127.0.0.1:{port}"] for _ in range(count - 1))]:
            log = (home / f"node{len(nodes)}.log").open("wb")
            command = [str(RAY), "start", *words, *common]
            nodes.append(subprocess.Popen(command, env=theirs, stdout=log, stderr=log, start_new_session=True))
            until(listening, port)
        yield Cluster(f"127.0.0.1:{port}", environment, nodes)
    finally:
        for node in nodes:
            kill_tree(node.pid)
            node.wait()
        shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    home = tmp_path_factory.mktemp("cluster")
    token = home / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    with started(home, 2, {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}) as running:
        yield running


def listening(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


def processes() -> dict[int, tuple[int, list[str]]]:
    """The parent and the words of every process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            state = (path / "stat").read_text().rpartition(")")[2].split()
            if state[0] != "Z":
                words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
                found[int(path.name)] = int(state[1]), words
    return found


def tree(root: int) -> list[int]:
    every = processes()
    found = [root]
    for process in found:
        found += [child for child, (parent, _) in every.items() if parent == process]
    return found


def kill_tree(root: int) -> None:
    """A machine that loses its power: all at once, without a word."""
    for process in tree(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def measuring(cluster: Cluster, node: int | None = None) -> list[int]:
    """The jobs of this cluster that measure now, as processes, also those whose worker is gone; of one node, if it is
    named. Other tests measure at the same time."""
    every = processes()
    ours = f"{locks.VARIABLE}={cluster.environment[locks.VARIABLE]}".encode()
    jobs = {p for p, (_, words) in every.items() if "model_profiling" in words and "run" in words}
    # Before a runner is itself, it looks like what starts it.
    found = [process for process in jobs if every[process][0] not in jobs and ours in surroundings(process)]
    inside = set(tree(cluster.nodes[node].pid)) if node is not None and found else set()
    return [process for process in found if node is None or process in inside]


def surroundings(process: int) -> list[bytes]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return []


class Watch(threading.Thread):
    """Counts how many jobs measure at once."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self.most = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.15):
            self.most = max(self.most, len(measuring(self._cluster)))


def test_a_lost_worker_and_a_lost_node_cost_time_and_nothing_else(
    cluster: Cluster, toy: Callable[[str], Path], tmp_path: Path
) -> None:
    keys = FEW | {"models": [str(toy("fp16"))], "threads": [1, 2, 3, 4, 5, 6], "runs": 30, "reports": False}
    (tmp_path / "all.json").write_text(json.dumps(keys))
    command = [sys.executable, "-m", "model_profiling", "sweep", "all.json", "--json", "--ray", cluster.address]
    watch = Watch(cluster)
    watch.start()
    with (tmp_path / "said").open("wb") as said:
        sweep = subprocess.Popen(
            command, cwd=tmp_path, env=cluster.environment, stdout=subprocess.PIPE, stderr=said, text=True
        )
        try:
            # A worker in the middle of a measurement: its parent is the worker's process.
            job = until(measuring, cluster)[0]
            worker = processes()[job][0]
            os.kill(worker, signal.SIGKILL)
            journaled = tmp_path / "out_all" / ".sweep" / "journal.jsonl"
            until(lambda: any(entry.event == "finished" for entry in journal.read(journaled)))
            until(measuring, cluster, 1)
            kill_tree(cluster.nodes[1].pid)
            output, _ = sweep.communicate(timeout=LONGEST_S)
        finally:
            sweep.kill()
    watch.over.set()
    watch.join()
    text = (tmp_path / "said").read_text()
    assert sweep.returncode == 0, text
    result = json.loads(output)
    assert result["status"] == "complete" and len(result["cells"]) == 6 and not result["notes"]
    entries = journal.read(journaled)
    ended = Counter(entry.job for entry in entries if entry.event == "finished")
    assert len(ended) == 6 and set(ended.values()) == {1}
    assert sum(entry.event == "lost" for entry in entries) >= 2
    assert watch.most == 1
    spans = [json.loads(line) for line in (tmp_path / "out_all/.sweep/cluster.jsonl").read_text().splitlines()]
    spans.sort(key=lambda span: span["began"])
    assert len(spans) == 6 and all(a["ended"] <= b["began"] for a, b in itertools.pairwise(spans))
    # Nothing of Ray's own words reaches the user.
    assert all(line.startswith(("sweep: ", "note: ")) for line in text.splitlines()), text
    for cell in result["cells"]:
        manifest = json.loads((tmp_path / "out_all" / cell["run"] / "manifest.json").read_text())
        assert Path(manifest["model"]["path"]).is_file()


def test_an_address_without_a_cluster_and_a_wrong_token_say_what_to_do(cluster: Cluster, tmp_path: Path) -> None:
    nobody = cluster.environment
    wrong = cluster.environment | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    asked = (
        (nobody, f"127.0.0.1:{free_port()}", "there is no Ray cluster"),
        (nobody, "nonsense", "not an address"),
        (wrong, cluster.address, "RAY_AUTH_TOKEN"),
    )

    def ask(environment: dict[str, str], address: str, words: str) -> None:
        # Each in a folder of its own: two sweeps do not write to one.
        home = tmp_path / words
        home.mkdir()
        (home / "one.json").write_text(json.dumps(FEW | {"models": ["toy_cnn"]}))
        command = [sys.executable, "-m", "model_profiling", "sweep", "one.json", "--ray", address]
        done = subprocess.run(
            command, cwd=home, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
        assert done.returncode in (2, 3) and words in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert not done.stdout

    with ThreadPoolExecutor() as all_at_once:
        list(all_at_once.map(ask, *zip(*asked, strict=True)))


# What a hostile node answers, by the number of threads that it was to measure with; to 1 it answers honestly.
HOSTILE = """
import io, sys, zipfile
from importlib.machinery import PathFinder
import msgspec

TASK = "model_profiling.fleet.sweep.task"

def sent(name):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as whole:
        whole.writestr(name, b"{}")
    return {"node": "evil", "parcel": packed.getvalue()}

def throw():
    raise LookupError("first line\\nlast \\x1b[2J line")

ANSWERS = {
    2: throw,
    3: lambda: b"\\xff\\0garbage" * 1000,
    4: lambda: sent("../../../../victim"),
    5: lambda: sent("manifest.json"),
    6: lambda: {"node": "\\x1b]0;evil\\x07", "failure": "bad \\x1b[2J news", "seconds": 1.0},
}

def hostile(honest):
    def perform(task, program):
        name = msgspec.msgpack.decode(task)["name"]
        answer = ANSWERS.get(int(name.rpartition("-t")[2].partition("-")[0]))
        found = answer() if answer else honest(task, program)
        return msgspec.msgpack.encode(found) if isinstance(found, dict) else found
    return perform

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = PathFinder.find_spec(name, path) if name == TASK else None
        if spec is not None:
            load = spec.loader.exec_module
            def exec_module(module):
                load(module)
                module.perform = hostile(module.perform)
            spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder)
"""
REASONS = {
    2: "a node could not begin: ",
    3: "a node sent no result",
    4: "it has a file '../../../../victim'",
    5: "the cluster sent no complete run",
    6: "bad \\u001b[2J news",
}


def test_what_a_hostile_node_sends_is_refused_and_the_rest_goes_on(toy: Callable[[str], Path], tmp_path: Path) -> None:
    """Without a token, which is said; also to one who has a token that the cluster does not ask for."""
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "sitecustomize.py").write_text(HOSTILE)
    (tmp_path / "token").write_text(secrets.token_hex(32))
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")}
    with started(tmp_path, 1, {"RAY_AUTH_MODE": "disabled"}, str(tmp_path / "nodes")) as cluster:
        command = [sys.executable, "-m", "model_profiling", "sweep", "many.json", "--json", "--ray", cluster.address]
        for reasons, more in ((REASONS, {}), ({2: REASONS[2]}, own)):
            keys = FEW | {"models": [str(toy("fp16"))], "threads": [1, *reasons], "reports": False}
            (tmp_path / "many.json").write_text(json.dumps(keys))
            environment = cluster.environment | more
            ended = subprocess.run(
                command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LONGEST_S, check=False
            )
            assert ended.returncode == 4 and "Traceback" not in ended.stderr, ended.stderr
            assert not list(tmp_path.rglob("victim"))
            result = json.loads(ended.stdout)
            failed = {job["name"]: job["failure"] for job in result["jobs"] if job["state"] == "failed"}
            assert [cell["threads"] for cell in result["cells"] if cell["state"] == "finished"] == [1]
            for threads, reason in reasons.items():
                (failure,) = (words for name, words in failed.items() if f"-t{threads}-" in name)
                assert reason in failure and failure.isprintable(), failure
            # What came and was refused is gone.
            assert not list((tmp_path / "out_many" / ".sweep").glob("incoming/*"))
            assert "without a token" in ended.stderr and "without a token" in result["notes"][0]
            assert "without a token" in (tmp_path / "out_many" / "portfolio.md").read_text()


# Connects as a sweep does, and asks for a result that was only on the node that is killed then.
LOSING = """
import sys
import time
from pathlib import Path

from model_profiling.fleet.sweep import ray_executor

ray = ray_executor.connected(sys.argv[1], Path("ray.log"))
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

here = ray.get_runtime_context().get_node_id()
while len(ray.nodes()) < 2:
    time.sleep(0.1)
(there,) = (node["NodeID"] for node in ray.nodes() if node["NodeID"] != here)
task = ray.remote(max_retries=0)(lambda: bytes(20_000_000))
ref = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(there, soft=False)).remote()
ray.wait([ref], fetch_local=False)
print("kill it", flush=True)
input()
try:
    ray_executor.fetch(ray, ref, 60.0)
except ray_executor.LostError:
    print("lost")
"""


def test_a_result_lost_with_its_node_is_an_error_and_no_text_of_rays(tmp_path: Path) -> None:
    with started(tmp_path, 2, {"RAY_AUTH_MODE": "disabled"}) as cluster:
        command, pipe = [sys.executable, "-c", LOSING, cluster.address], subprocess.PIPE
        with subprocess.Popen(
            command, cwd=tmp_path, env=cluster.environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        ) as driver:
            assert driver.stdout is not None and driver.stdout.readline() == "kill it\n"
            kill_tree(cluster.nodes[1].pid)
            output, errors = driver.communicate("\n", timeout=LONGEST_S)
    assert (output, errors) == ("lost\n", "")
