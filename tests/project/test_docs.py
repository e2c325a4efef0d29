"""The documentation is executed: every command block that can run here, in order, in a fresh workspace.

`make test-wide` runs the fast blocks, each text once; `make test-docs` (SME2_KIT_ALL_DOCS=1) runs all, repetitions too.
"""

import argparse
import ast
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_profiling.base.rewrites import REWRITE_CHOICES
from model_profiling.cli.main import COMMANDS, make_parser
from tests.conftest import ROOT
from tests.helpers.doc_blocks import DOCUMENTS, WORDS, Block, blocks
from tests.helpers.gallery import gallery_program

ALL = bool(os.environ.get("SME2_KIT_ALL_DOCS"))


def test_every_block_is_marked_with_a_word_that_means_something() -> None:
    for block in blocks():
        assert block.word in ("", *WORDS), f"{block.name}: {block.word}"
    assert len([block for block in blocks() if not block.word]) > 30


@pytest.mark.parametrize("block", [block for block in blocks() if block.word], ids=lambda block: block.name)
def test_a_block_that_cannot_run_here_parses(block: Block) -> None:
    subprocess.run(["bash", "-n"], input=block.script, text=True, check=True)


def test_no_document_hides_commands_from_us() -> None:
    """Shell written under another name would not be run."""
    for document in DOCUMENTS:
        assert not re.search(r"^ *```(sh|shell|console|zsh)\b", document.read_text(), re.MULTILINE), document


def test_the_gallery_and_the_readmes_picture_show_what_reports_look_like_now() -> None:
    """Else: make gallery, on a quiet machine."""
    regenerate = gallery_program()
    page = (ROOT / "docs" / "gallery" / "README.md").read_text()
    assert regenerate.shown_layout(page) == regenerate.layout(), "the gallery is older than the reports: make gallery"
    for report in (ROOT / "docs" / "gallery").rglob("*.md"):
        named = set(re.findall(r"--rewrite ([a-z-]+)", report.read_text()))
        assert named <= set(REWRITE_CHOICES), f"{report} names rewrites that are gone"


def test_the_table_of_extras_has_those_of_the_package() -> None:
    section = (ROOT / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^([a-z]+) = \[", section, re.MULTILINE)) - {
        "dev",
        "docs",
        "wide",
    }  # for work on the kit itself
    table = (ROOT / "docs" / "install.md").read_text().partition("| extra |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)) == extras


def test_all_documents_are_listed() -> None:
    written = {*(ROOT / "docs").glob("*.md"), *(ROOT / "agent_skill_ml_profiling").glob("*.md"), ROOT / "README.md"}
    assert written <= set(DOCUMENTS)


def test_the_readme_is_one_screen_with_a_picture_and_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text) < 4500 and max(map(len, text.splitlines())) < 140
    commands = [
        line for block in blocks() if block.document == ROOT / "README.md" for line in block.script.splitlines()
    ]
    assert [" ".join(line.split()[:2]) for line in commands] == ["make demo", "make test", ".venv/bin/sme2-kit profile"]
    status = text.partition("## Status")[2].partition("##")[0]
    assert status.count("\n- ") == 3
    for said in ("No SME2 silicon", "no phone", "not run on a Mac"):
        assert said in status
    assert (ROOT / "docs" / "images" / "report.png").read_bytes().startswith(b"\x89PNG")


QUESTIONS = ROOT / "docs" / "questions.md"
# What a row of the page's table is in the table of known kernels.
ROWS = {
    "linear layer": ("FullyConnected", ""),
    "convolution 3x3 and larger": ("Conv2d", "window"),
    "convolution 1x1": ("Conv2d", "pointwise"),
    "depthwise convolution": ("DepthwiseConv2d", ""),
    "transposed convolution": ("ConvTranspose2d", "window"),
    "product of two computed matrices (attention)": ("BatchMatrixMultiply", ""),
}
STORED = {"fp32": "fp32", "fp16": "fp16", "int8": "qint8", "int8-dynamic": "qdint8"}


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_question_is_asked_on_the_first_pages_and_answered() -> None:
    asked = []
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        listed = page.read_text().partition("## Questions")[2].partition("##")[0]
        links = re.findall(r"^- \[(.+)\]\(([^)#]+)#?([^)]*)\)$", listed, re.MULTILINE)
        assert len(links) == 11
        for _, target, anchor in links:
            assert not anchor or anchor in _anchors(page.parent / target), anchor
        asked.append([(words, target.removeprefix("docs/"), anchor) for words, target, anchor in links])
    assert asked[0] == asked[1]
    answered = {anchor for _, target, anchor in asked[0] if target == "questions.md"}
    assert answered == _anchors(QUESTIONS) - {"questions"}


def test_sme2_coverage_is_defined_once_and_linked_where_it_is_named() -> None:
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        if "SME2 coverage" in text:
            assert "#what-is-sme2-coverage" in text, document
        assert document == QUESTIONS or "multiply-accumulates that" not in text, document


def test_the_table_of_dtypes_is_that_of_known_kernels() -> None:
    table = json.loads((ROOT / "model_profiling" / "kernel_tables" / "1.5.1.json").read_text())
    known: dict[tuple[str, str, str], set[bool]] = {}
    for row in table["rows"]:
        node = row["node"]
        # Groups of int4 have a column of no page but that of language models.
        if node["weights"] not in ("qbint4", "qcint4"):
            key = (node["op"], node["form"], node["activations"])
            known.setdefault(key, set()).add(any("_sme2_" in kernel for kernel in row["sme2"]))
    part = QUESTIONS.read_text().partition("<!-- dtypes and kernels -->")[2].partition("<!--")[0]
    heads, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in part.strip().splitlines())
    assert heads[1:] == list(STORED) and [row[0] for row in rows] == list(ROWS)
    for name, *cells in rows:
        for dtype, cell in zip(heads[1:], cells, strict=True):
            op, form = ROWS[name]
            stored = (op, form, STORED[dtype])
            (has,) = known.get(stored) or known[op, form, "fp32"]
            assert cell == ("yes" if has else "no") + ("" if stored in known else ", in fp32"), (name, dtype)


def test_the_networks_that_are_slower_in_int8_are_those_of_the_record() -> None:
    measured = json.loads((ROOT / "docs" / "advice.json").read_text())["dtypes"]["measured"]
    gains = {(entry["network"], entry["dtype"]): entry["gain"]["ratio"] for entry in measured}
    both = sorted(name for name, dtype in gains if dtype == "int8" and (name, "fp16") in gains)
    slower = [name for name in both if gains[name, "int8"] < gains[name, "fp16"]]
    said = re.sub(r"\s+", " ", QUESTIONS.read_text())
    assert f"of the {len(both)} networks of" in said and f"in {', '.join(slower[:-1])} and {slower[-1]}." in said


def test_the_page_of_all_commands_has_all() -> None:
    page = (ROOT / "model_profiling" / "pipeline_commands.md").read_text()
    (commands,) = [each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction)]
    said = {each.dest: each.help for each in commands._choices_actions}
    for name in COMMANDS:
        assert f"| `sme2-kit {name}` | {said.get(name, 'earlier name of')}" in page, name
    for script in re.findall(r"`((?:scripts|export)/[a-z_]+\.(?:py|sh))`", page):
        assert (ROOT / "model_profiling" / script).is_file(), script


def test_contributing_is_one_page_and_names_what_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(text.splitlines()) < 120
    added = re.findall(r"^\| (\w[\w ]*) \|", text.partition("## How do I add")[2], re.MULTILINE)
    assert len(added) == 10, added
    paths = [name for name in re.findall(r"`([\w./]+)`", text) if re.search(r"/.*\.\w+$|/$", name)]
    assert len(paths) > 20
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / "model_profiling" / path).exists(), path


def test_links_between_files_of_the_repository_lead_somewhere() -> None:
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text):
            assert "://" in target or (document.parent / target).exists(), f"{document}: {target}"


def test_no_page_of_ours_names_a_machine_or_a_host() -> None:
    for document in DOCUMENTS:
        text = document.read_text()
        assert not re.search(r"(?<![\w.~$])/(home|work|root|Users)/", text), document
        assert "http" not in text, document


def test_what_users_read_has_the_words_of_the_field() -> None:
    """Inventions that stood where perf, pyperf and benchstat have a word; comments may say what they like."""
    ours = re.compile(
        r"surely (slower|faster)|would not show|there already, from|for lack of|is no assumption|\bmood\b|words before"
        r"|unharmed|\bmends?\b|to its left|(goes|gone|going) on\b|for want of|took the processor away|unknown age"
    )
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]}
    for path in [*(ROOT / "model_profiling").rglob("*.py"), *(ROOT / "sme2_kit").rglob("*.py")]:
        if ours.search(text := path.read_text()):
            texts[str(path.relative_to(ROOT))] = "\n".join(_strings(ast.parse(text)))
    found = [f"{name}: {match[0]}" for name, text in texts.items() for match in ours.finditer(text)]
    assert not found


def _strings(tree: ast.Module) -> Iterator[str]:
    """The text of a module that is not a docstring."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_troubleshooting_quotes_messages_that_exist() -> None:
    """Each message is words the code says, up to its first placeholder."""
    source = "\n".join(
        path.read_text()
        for pattern in ("*.py", "*.cpp", "*.h", "remedies.txt")
        for package in ("model_profiling", "sme2_kit")
        for path in (ROOT / package).rglob(pattern)
        if "out_" not in str(path)
    )
    flat = re.sub(r'"\s*\n\s*f?"', "", source)
    table = (ROOT / "docs" / "troubleshooting.md").read_text()
    # Said by torch and by the system, and put together from what msgspec says.
    others = {
        *("operator torchvision::nms does not exist", "Too many open files"),
        "config …: there is an unknown field",
    }
    for message in re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE):
        if message in others:
            continue
        words = max((part.strip(" '") for part in message.split("…")), key=len)
        assert words in flat, f"no error says {words!r}"
