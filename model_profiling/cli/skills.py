"""`sme2-kit skills`: lists the playbooks for assistants and CI, shows or validates one, or installs them."""

import argparse
from pathlib import Path

from model_profiling.base.printing import say, tell
from model_profiling.cli import shared_flags, skill_gate

HELP = "list, show, install or validate the playbooks for assistants and CI"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="names and what they are for (the default)")
    show = actions.add_parser("show", help="print one")
    show.add_argument("name", metavar="NAME", help="for example 03_export_model")
    install = actions.add_parser("install", help="write them in the open Agent Skills form, a folder each")
    text = "default: .agents/skills here, and .claude/skills where .claude exists"
    shared_flags.add_out(install, text, earlier=("--to",))
    gate = actions.add_parser("validate", help=skill_gate.HELP, description=skill_gate.HELP)
    skill_gate.prepare_parser(gate)
    for each in actions.choices.values():
        each.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")


def run(args: argparse.Namespace) -> int:
    if args.action == "validate":
        return skill_gate.run(args)
    from model_profiling.skills import folders
    from model_profiling.skills.catalogue import find_skill, skills

    if args.action == "show":
        skill = find_skill(args.name)
        say(folders.skill_md(skill))
    elif args.action == "install":
        places = [args.out] if args.out else folders.default_places(Path())
        for path in folders.install(places):
            say(f"{path}\n")
    else:
        for skill in skills():
            tell(f"{skill.name:<22}{skill.description} ({skill.duration})\n")
    return 0
