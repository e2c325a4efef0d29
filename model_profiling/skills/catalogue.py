"""Reads the skills: Markdown with a front matter of one `key: value` a line."""

import json
import re
from pathlib import Path

import msgspec

from model_profiling.base.errors import InputError, SetupError
from model_profiling.base.installation import PACKAGE, clone, install_command

# In a wheel the texts lie in the package; in a clone, at the repository's root.
_PACKAGED = Path(__file__).parent / "texts"
_CLONED = Path(__file__).resolve().parents[2] / "agent_skill_ml_profiling"
# What is another command or place where pip installed the kit, in this order.
_RULES = (
    # Commands.
    (r"bash model_profiling/scripts/setup_repo\.sh", install_command("export")),
    (r"bash model_profiling/scripts/build_runners\.sh", "sme2-kit build"),
    (
        r"python model_profiling/scripts/\w+_pipeline\.py --config model_profiling/configs/examples/\w+\.json",
        "sme2-kit run out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte",
    ),
    (r"python model_profiling/(\w+)/(\w+)\.py", r"python -m model_profiling.\1.\2"),
    # Places.
    (r"model_profiling/out_", "out_"),
    (r"model_profiling/(configs|models|scripts)/", f"{PACKAGE}/\\1/"),
    # The environment is the user's own.
    (r"(?m)^ *source \.venv/bin/activate\n", ""),
)


class Skill(msgspec.Struct, frozen=True):
    """One playbook. `name` is its file's name without `.md`; `verify` is the command that proves it was done."""

    name: str
    description: str
    when_to_use: str
    duration: str
    verify: str
    exit_code: int
    body: str

    @property
    def folder(self) -> str:
        """Its name in the open form, which allows small letters, digits and hyphens: `sme2-export-model`."""
        return "sme2-" + self.name[3:].replace("_", "-")


def skills() -> list[Skill]:
    """Return all skills, in order."""
    folder = _PACKAGED if _PACKAGED.is_dir() else _CLONED
    paths = sorted(folder.glob("[0-9][0-9]_*.md"))
    if not paths:
        raise SetupError(f"there are no skills in {folder}", "Install the kit again.")
    texts = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    if clone() is None:
        for pattern, replacement in _RULES:
            texts = {stem: re.sub(pattern, replacement, text) for stem, text in texts.items()}
    return [parse_skill(stem, text) for stem, text in texts.items()]


def find_skill(text: str) -> Skill:
    """Return the skill a person means by `03_export_model.md`, `export_model`, `sme2-export-model` or `03`."""
    wanted = text.removesuffix(".md").replace("-", "_").removeprefix("sme2_")
    known = skills()
    for skill in known:
        if wanted in (skill.name, skill.name[3:], skill.name[:2]):
            return skill
    raise InputError(f"there is no skill '{text}'", f"Skills: {', '.join(skill.name for skill in known)}.")


def parse_skill(stem: str, text: str) -> Skill:
    match = re.match(r"---\n(.*?)\n---\n(.*)", text, re.DOTALL)
    if match is None:
        raise InputError(f"skill {stem} has no front matter", "Begin it with `---`, keys, `---`.")
    values = {}
    for line in match[1].splitlines():
        key, _, value = line.partition(":")
        values[key.strip()] = value.strip()
    missing = [key for key in Skill.__struct_fields__[:-1] if not values.get(key)]
    if missing or values["name"] != stem:
        problem = f"lacks {', '.join(missing)}" if missing else f"is named {values['name']} inside"
        raise InputError(f"skill {stem} {problem}", "Correct its front matter.")
    return msgspec.convert({**values, "body": match[2].lstrip("\n")}, Skill, strict=False)


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
