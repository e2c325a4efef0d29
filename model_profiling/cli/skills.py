"""List, show, install or validate the playbooks for assistants and CI."""

import argparse
from pathlib import Path

from model_profiling.api.definition import takes
from model_profiling.base import files
from model_profiling.base.dtypes import DEFAULT_DTYPE
from model_profiling.base.printing import say, tell
from model_profiling.cli.answer import answer

# Where assistants look, relative to a project; the second only where that assistant is in use already.
_SHARED, _OF_CLAUDE = Path(".agents/skills"), Path(".claude/skills")
# Each is a command of its own.
ACTIONS = {
    "list": ("names and what they are for (the default)", takes()),
    "show": ("print one", takes(more="name=SkillName!")),
    "install": ("write them in the open Agent Skills form, a folder each", takes(more="out=SkillsOut")),
    "validate": (
        "check that the results of a playbook are there and valid",
        takes(more="name=SkillName! model=SkillModel dtype=SkillDtype paths=SkillRun? out=SkillOut json"),
    ),
}


def run(args: argparse.Namespace) -> int:
    from model_profiling.skills.catalogue import find_skill, skill_md, skills

    if args.action == "validate":
        return _validate(args)
    if args.action == "show":
        say(skill_md(find_skill(args.name)))
    elif args.action == "install":
        places = [args.out] if args.out else [_SHARED, *([_OF_CLAUDE] if _OF_CLAUDE.parent.is_dir() else [])]
        for path, skill in ((place / skill.folder / "SKILL.md", skill) for place in places for skill in skills()):
            files.write_text(path, skill_md(skill))
            say(f"{path}\n")
    else:
        tell("".join(f"{each.name:<22}{each.description} ({each.duration})\n" for each in skills()))
    return 0


def _validate(args: argparse.Namespace) -> int:
    from model_profiling.platforms.platform_table import local_name
    from model_profiling.skills.catalogue import find_skill
    from model_profiling.skills.checks import SkillWorkspace, check_skill, skill_place

    skill = find_skill(args.name)
    model, usual = skill_place(skill.name, args.model)
    out = args.out or usual
    run = next(iter(args.paths), None) or out / "runs" / local_name()
    findings = check_skill(skill.name, SkillWorkspace(model, args.dtype or DEFAULT_DTYPE, out, run))
    ok = all(finding.ok for finding in findings)
    lines = [f"{'ok' if finding.ok else 'FAILED':<8}{finding.what}: {finding.found}\n" for finding in findings]
    answer(args, {"skill": skill.name, "ok": ok, "findings": findings}, lambda: tell("".join(lines)))
    return 0 if ok else 1
