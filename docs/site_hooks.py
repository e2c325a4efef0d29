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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, place in MOVED.items():
        files.append(File.generated(config, place, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to moved files into links on the site, and leave out the words our tests read after `bash`."""
    for source, place in MOVED.items():
        markdown = markdown.replace(f"](../{source}", f"]({place}")
    return re.sub(r"^( *```bash)[^\n]*$", r"\1", markdown, flags=re.MULTILINE)
