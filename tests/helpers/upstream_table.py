"""The table of docs/platforms.md of what the kit relies on: `python -m tests.helpers.upstream_table` writes it."""

from model_profiling.report.markdown import text
from model_profiling.upstream.all_reliances import ALL
from tests.conftest import ROOT

DOCUMENT = ROOT / "docs" / "platforms.md"
START, END = "<!-- upstream -->\n", "<!-- end of upstream -->\n"


def table() -> str:
    """What stands between the marks."""
    rows = ["| name | whose | relies on | proven with | checked | otherwise |", "|---|---|---|---|---|---|"]
    for each in ALL:
        cells = (each.project, each.relies_on, each.proven, each.checked, each.instead)
        rows.append(f"| `{each.name}` | " + " | ".join(map(text, cells)) + " |")
    return "\n".join(rows) + "\n"


def with_table(document: str) -> str:
    before, rest = document.split(START)
    return before + START + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
