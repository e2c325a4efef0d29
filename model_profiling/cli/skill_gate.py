"""`sme2-kit skills validate NAME`: the gate of one playbook; exit 0 if it left what it promises, else 1."""

import argparse

from model_profiling.base.dtypes import DEFAULT_DTYPE
from model_profiling.base.printing import tell
from model_profiling.cli import shared_flags
from model_profiling.cli.answer import answer

HELP = "check that the results of a playbook are there and valid"


def prepare_parser(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="for example 03_export_model")
    parser.add_argument("--model", metavar="NAME", help="the model it worked on (default: toy_cnn, or the skill's own)")
    parser.add_argument("--dtype", default=DEFAULT_DTYPE, metavar="DTYPE", help="default: %(default)s")
    shared_flags.add_runs(parser, "its run directory (default: <out>/runs/<this machine's platform>)", "--run-dir")
    shared_flags.add_out(parser, "the folder it wrote (default: out_<model>, here or in model_profiling)")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    from model_profiling.platforms.platform_table import local_name
    from model_profiling.skills.catalogue import find_skill
    from model_profiling.skills.checks import SkillWorkspace, check_skill, skill_place

    skill = find_skill(args.name)
    model, usual = skill_place(skill.name, args.model)
    out = args.out or usual
    place = SkillWorkspace(
        model, args.dtype, out, next(iter(shared_flags.given_paths(args)), None) or out / "runs" / local_name()
    )
    findings = check_skill(skill.name, place)
    ok = all(finding.ok for finding in findings)
    lines = [f"{'ok' if finding.ok else 'FAILED':<8}{finding.what}: {finding.found}\n" for finding in findings]
    answer(args, {"skill": skill.name, "ok": ok, "findings": findings}, lambda: tell("".join(lines)))
    return 0 if ok else 1
