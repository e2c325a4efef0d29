"""What the site needs beyond docs/: pages that live elsewhere in the repository, and links that lead to them."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Where a file of the repository is on the site.
SKILLS = "agent_skill_ml_profiling"
MOVED = {
    "model_profiling/pipeline_commands.md": "pipeline_commands.md",
    **{f"{SKILLS}/{path.name}": f"skills/{path.name}" for path in (ROOT / SKILLS).glob("*.md")},
}


NOTEBOOK = "notebook.py"
# A cell of a table, code in it, and where the name of a file or a field may go on in the next line.
_CELL, _CODE, _PART = re.compile(r"<td.*?</td>", re.DOTALL), re.compile(r"(?<=<code>)[^<]+"), re.compile(r"([_/.,:])")
_DIAGRAM = re.compile(r'<p><img alt="[^"]*" src="(?:\.\./)*(images/[\w-]+\.svg)" ?/?></p>')


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
    """Turn links to moved files into links on the site, and leave out the words our tests read after `bash`."""
    for source, place in MOVED.items():
        markdown = markdown.replace(f"](../{source}", f"]({place}")
    if page.file.src_uri in MOVED.values():
        markdown = markdown.replace("](../docs/", f"]({'../' * page.file.src_uri.count('/')}")
    markdown = markdown.replace(f"]({NOTEBOOK}", "](notebook.md")
    return re.sub(r"^( *```bash)[^\n]*$", r"\1", markdown, flags=re.MULTILINE)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Put drawings into the page, so that they follow its colours, and let names in tables break at their parts.

    The search index has been filled by now and has neither.
    """
    output = _DIAGRAM.sub(lambda match: diagram(match[1]), output)
    return _CELL.sub(lambda cell: _CODE.sub(lambda code: _PART.sub(r"\1<wbr>", code[0]), cell[0]), output)


def diagram(path: str) -> str:
    """A drawing and, beside it, the one for narrow screens, if there is one; the site's style shows one of them."""
    wide = ROOT / "docs" / path
    drawings = [wide, wide.with_name(f"{wide.stem}-narrow.svg")]
    return "\n".join(drawing.read_text().strip() for drawing in drawings if drawing.is_file())
