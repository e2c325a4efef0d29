"""The table of rewrites is the only list of them: what else names rewrites follows from it, and so does the advice."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from model_profiling.base import dtypes
from model_profiling.base.rewrites import LAYOUT, REWRITES, rewrites_for
from tests.conftest import QUICK, ROOT, shared_home
from tests.helpers import warm

# A rewrite that the kit does not have: its row, what does it, its module, and a network that it is for.
ROW = 'Rewrite("expm1", "expm1 from operators that XNNPACK delegates", ("expm1",)),'
DONE_BY = 'DONE_BY["expm1"] = __import__(f"{__name__}.expm1", fromlist=["REWRITES"]).REWRITES'
MODULE = '''
"""Expm1 as an exponential minus one."""

import torch

from model_profiling.export.rewrites.graph import NodeRewrite

aten = torch.ops.aten


def written(site):
    """Write it as exp(x) - 1."""
    return site(aten.sub.Tensor, site(aten.exp.default, site.source), site.number(site.node, 1.0))


REWRITES = [NodeRewrite([aten.expm1.default], lambda site: True, written)]
'''
# What the copy of the kit is asked: what the command line lists, what the advice names, and what the rewrite does.
SCRIPT = """
import argparse

import torch

from model_profiling import api
from model_profiling.analysis.advice.finding import Evidence
from model_profiling.cli.main import make_parser

# How sure the times of a busy machine are is not what is asked here.
Evidence.error_ms = lambda self, instances: 0.0


class Net(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.expm1(x))


parser = make_parser(["export"])
assert parser.parse_args(["export", "x", "--rewrite", "expm1"]).rewrites == ["expm1"]
(commands,) = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
assert "expm1: expm1 from operators" in " ".join(commands.choices["export"].format_help().split())
inputs = (torch.randn(1, 8, 64, 64),)
run = api.profile(Net(), inputs, dtype="fp32", out="run", lock=False)
advice = [finding for experiment in run.summary.experiments.values() for finding in experiment.advice]
assert {finding.rewrite for finding in advice if finding.rewrite} == {"expm1"}, advice
record = api.export(Net(), inputs, dtype="fp32", rewrites=["expm1"], out="rewritten").record
assert not record.delegation.portable_nodes and record.verification.verdict == "agrees", record
"""


def test_every_row_is_done_by_something_and_has_a_test() -> None:
    pytest.importorskip("executorch.exir")
    from model_profiling.export.rewrites import DONE_BY

    assert {*DONE_BY, LAYOUT} == set(REWRITES)
    tests = "".join((ROOT / "tests" / "export" / f"test_{name}.py").read_text() for name in ("rewrites", "islands"))
    for name, row in REWRITES.items():
        assert f'"{name}"' in tests, f"no test names {name}"
        assert row.help and set(row.dtypes) <= set(dtypes.NAMES) and set(row.includes) <= set(REWRITES)
        assert set(row.alternatives) <= set(row.operators)
    assert rewrites_for("aten.mean") == ("keepdim", "mean") and rewrites_for("aten.conv2d") == ()


def test_the_page_of_rewrites_describes_all_of_them() -> None:
    page = (ROOT / "docs" / "03-pipeline-and-analysis.md").read_text()
    (table,) = re.findall(r"^\| `--rewrite` \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == set(REWRITES)


@pytest.mark.wide
def test_a_new_rewrite_is_a_row_and_a_module(tmp_path: Path) -> None:
    """In a copy of the kit with these two changes it can be asked for, is recorded, done and recommended."""
    pytest.importorskip("executorch.exir")
    shutil.copytree(
        ROOT / "model_profiling", tmp_path / "model_profiling", ignore=shutil.ignore_patterns("__pycache__", "out_*")
    )
    table = tmp_path / "model_profiling" / "base" / "rewrites.py"
    table.write_text(table.read_text().replace("_ROWS = (\n", f"_ROWS = (\n    {ROW}\n"))
    rewrites = tmp_path / "model_profiling" / "export" / "rewrites"
    (rewrites / "expm1.py").write_text(MODULE)
    with (rewrites / "__init__.py").open("a") as file:
        file.write(f"\n{DONE_BY}\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), **QUICK}
    python = str(warm.python(shared_home()))
    done = subprocess.run(
        [python, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
