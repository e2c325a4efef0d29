"""The open Agent Skills form: one folder per skill with a SKILL.md, made from the same text."""

import json
from pathlib import Path

from model_profiling.base import files
from model_profiling.base.installation import clone
from model_profiling.skills.catalogue import Skill, skills

# Where assistants look, relative to a project; the second only where that assistant is in use already.
SHARED, OF_CLAUDE = Path(".agents/skills"), Path(".claude/skills")


def default_places(project: Path) -> list[Path]:
    return [project / SHARED] + ([project / OF_CLAUDE] if (project / OF_CLAUDE.parent).is_dir() else [])


def install(places: list[Path]) -> list[Path]:
    """Write every skill into each place; other skills that lie there stay."""
    written = []
    for place in places:
        for skill in skills():
            path = place / skill.folder / "SKILL.md"
            files.write_text(path, skill_md(skill))
            written.append(path)
    return written


def skill_md(skill: Skill) -> str:
    """Return SKILL.md: the front matter the open form asks for, then the skill's own text."""
    source = "the installed" if clone() is None else "a clone of the"
    # A JSON string is a YAML string whatever it contains.
    lines = [
        "---",
        f"name: {skill.folder}",
        f"description: {json.dumps(f'{skill.description} Use when {skill.when_to_use}', ensure_ascii=False)}",
        "license: Apache-2.0",
        f"compatibility: Needs {source} SME2 ExecuTorch Profiling Kit, bash and Python 3.10 to 3.14.",
        "metadata:",
        f"  source: agent_skill_ml_profiling/{skill.name}.md",
        f"  duration: {json.dumps(skill.duration, ensure_ascii=False)}",
        f"  verify: {json.dumps(skill.verify, ensure_ascii=False)}",
        "---",
        "",
    ]
    return "\n".join(lines) + skill.body
