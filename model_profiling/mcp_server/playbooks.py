"""The playbooks as prompts, for people to start one, and as resources, for assistants to read."""

from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts import Prompt
from mcp.server.mcpserver.resources import TextResource
from pydantic import Field

from model_profiling.skills.catalogue import Skill, skills

SCHEME = "sme2-kit://playbooks/"
_WITH_TOOLS = """Follow this playbook. Where this server has a tool, call it instead of the command: `sme2-kit export`
is the tool `export`, and so on; `--flag value` is the parameter `flag`. Scripts stand for commands: export_model.py for
`export`, linux_pipeline.py and mac_pipeline.py for `run`, analyze_results.py for `analyze`, generate_report.py for
`report`, validate_results.py for `validate`, validate_setup.py for `doctor`; `sme2-kit skills validate` is the tool
`validate_skill`. Paths are relative to the workspace."""
Subject = Annotated[
    str,
    Field(
        description="What to do it with, in words: a model, a .pte, a run directory (default: as the playbook says)."
    ),
]


def add_playbooks(server: MCPServer[Any]) -> None:
    for skill in skills():
        server.add_resource(
            TextResource(
                uri=f"{SCHEME}{skill.name}",
                name=skill.name,
                title=skill.description,
                description=f"When to use: {skill.when_to_use}",
                mime_type="text/markdown",
                text=skill.body,
            )
        )
        server.add_prompt(_prompt(skill))


def _prompt(skill: Skill) -> Prompt:
    def start(subject: Subject = "") -> str:
        about = f"\n\nDo it for: {subject}" if subject.strip() else ""
        verify = f"It is done when `{skill.verify}` ends with exit code {skill.exit_code}."
        return f"{_WITH_TOOLS} {verify}{about}\n\n{skill.body}"

    return Prompt.from_function(
        start, name=skill.name, title=skill.description, description=f"{skill.description} Use when {skill.when_to_use}"
    )
