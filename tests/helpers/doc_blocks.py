"""The command blocks of README, docs and skills, in the order a reader meets them."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

DOCUMENTS = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("index", "install", "01-overview", "02-setup-and-model-onboarding")),
    *(ROOT / "docs" / f"{name}.md" for name in ("03-pipeline-and-analysis", "04-agent-skills", "reading-a-report")),
    *(ROOT / "docs" / f"{name}.md" for name in ("sme2-without-hardware", "android", "results")),
    *(ROOT / "docs" / f"{name}.md" for name in ("measurement", "troubleshooting", "platforms", "questions")),
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("comparison", "api", "reference", "contracts", "roofs", "forecast", "layout", "llm")
    ),
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("sweeps", "graph", "numerics", "boards", "history", "advice", "runtimes", "zoo", "upstream-bugs")
    ),
    ROOT / "model_profiling" / "pipeline_commands.md",
    ROOT / "model_profiling" / "export" / "EXPORT_COMMANDS.md",
    ROOT / "model_profiling" / "scripts" / "readme.md",
    *sorted((ROOT / "agent_skill_ml_profiling").glob("*.md")),
]
# What may stand after `bash`: why a block is not run everywhere.
WORDS = {
    "slow": "run by `make test-docs`, syntax-checked elsewhere",
    "setup": "changes the machine or its packages",
    "mac": "needs a Mac",
    "phone": "needs an Android device",
    "board": "needs a machine behind ssh",
    "example": "names files that a reader has and the repository does not",
}
_BLOCK = re.compile(r"^(?P<indent> *)```bash(?P<words>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    document: Path
    line: int
    word: str
    script: str

    @property
    def name(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def commands(script: str) -> list[str]:
    """The commands of a script, each without line breaks and comments; what is written into a file is part of them."""
    lines = re.sub(r"\\\n\s*|(?<=\S) +#.*", "", script).splitlines()
    return [line.strip() for line in lines if line.strip() and line.strip() != "source .venv/bin/activate"]


def blocks() -> list[Block]:
    """Every `bash` block, without its indentation."""
    found = []
    for document in DOCUMENTS:
        text = document.read_text()
        for match in _BLOCK.finditer(text):
            script = re.sub(f"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
            found.append(Block(document, text.count("\n", 0, match.start()) + 1, match["words"].strip(), script))
    return found
