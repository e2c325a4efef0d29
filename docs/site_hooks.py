"""What the site needs beyond docs/: pages that live elsewhere in the repository, and links that lead to them."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Where a file of the repository is on the site.
SKILLS = "agent_skill_ml_profiling"
SCHEMAS = "model_profiling/schemas"
MOVED = {
    "model_profiling/pipeline_commands.md": "pipeline_commands.md",
    **{f"{SKILLS}/{path.name}": f"skills/{path.name}" for path in (ROOT / SKILLS).glob("*.md")},
    **{f"{SCHEMAS}/{path.name}": f"schemas/{path.name}" for path in (ROOT / SCHEMAS).glob("*.json")},
}


NOTEBOOK = "notebook.py"
_DIAGRAM = re.compile(r"^!\[[^\]]*\]\((images/[\w-]+\.svg)\)$", re.MULTILINE)


def notebook_cells(source: str) -> list[tuple[str, str]]:
    """The cells of a notebook in percent format, as ("markdown" or "python", text)."""
    found = []
    for cell in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        marker, _, text = cell.partition("\n")
        if "[markdown]" in marker:
            found.append(("markdown", re.sub(r"^# ?", "", text, flags=re.MULTILINE).strip()))
        else:
            found.append(("python", text.strip()))
    return found


def notebook_page(source: str) -> str:
    """The notebook as a page: its text, and its code in blocks."""
    cells = notebook_cells(source)
    return "\n\n".join(text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells) + "\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, place in MOVED.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text()))
    page = notebook_page((ROOT / "docs" / NOTEBOOK).read_text())
    files.append(File.generated(config, "notebook.md", content=page))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make a page of the repository one of the site: its links, its diagrams, and its blocks without our tests' words."""
    for source, place in MOVED.items():
        markdown = markdown.replace(f"](../{source}", f"]({place}")
    markdown = markdown.replace(f"]({NOTEBOOK}", "](notebook.md")
    markdown = _DIAGRAM.sub(lambda match: diagram(match[1]), markdown)
    return re.sub(r"^( *```bash)[^\n]*$", r"\1", markdown, flags=re.MULTILINE)


def diagram(path: str) -> str:
    """A drawing as part of the page, so that it follows the page's colours; beside it the one for narrow screens."""
    wide = ROOT / "docs" / path
    drawings = [wide, wide.with_name(f"{wide.stem}-narrow.svg")]
    return "\n".join(drawing.read_text().strip() for drawing in drawings if drawing.is_file())
