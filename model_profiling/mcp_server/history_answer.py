"""From what `history --json` prints to what its tool answers."""

from msgspec.structs import replace

from model_profiling.fleet.history.history_records import HistoryRun, ModelCoverage, TopOperator
from model_profiling.fleet.history.trends import Regression, Series, Step, Trend
from model_profiling.mcp_server import answers
from model_profiling.mcp_server.boundary import Workspace
from model_profiling.mcp_server.child import CommandResult


def history(workspace: Workspace, question: str, ended: CommandResult, most: int) -> answers.HistoryAnswer:
    """Return the first `most` entries, with paths of the workspace."""
    if question == "list":
        runs = ended.read(list[HistoryRun])
        shown = [replace(run, path=workspace.relative(run.path)) for run in runs[:most]]
        return answers.HistoryAnswer(len(runs), runs=shown)
    if question == "trend":
        found = ended.read(Trend).series
        return answers.HistoryAnswer(len(found), series=[_trend(workspace, each, most) for each in found[:most]])
    if question == "regressions":
        steps = ended.read(list[Regression])
        inside = [replace(entry, step=_step(workspace, entry.step)) for entry in steps[:most]]
        return answers.HistoryAnswer(len(steps), steps=inside)
    if question == "top":
        operators = ended.read(list[TopOperator])
        return answers.HistoryAnswer(len(operators), operators=operators[:most])
    models = ended.read(list[ModelCoverage])
    told = [replace(each, path=each.path and workspace.relative(each.path)) for each in models[:most]]
    return answers.HistoryAnswer(len(models), coverage=told)


def _trend(workspace: Workspace, series: Series, most: int) -> answers.SeriesTrend:
    points = series.points
    last = [
        replace(point, path=workspace.relative(point.path), report=point.report and workspace.relative(point.report))
        for point in points[-most:]
    ]
    ends = points[0].median_ms, points[-1].median_ms
    steps = [_step(workspace, step) for step in series.steps]
    return answers.SeriesTrend(series.title, series.device, len(points), *ends, last, steps)


def _step(workspace: Workspace, step: Step) -> Step:
    paths = {name: workspace.relative(getattr(step, name)) for name in ("before_path", "after_path")}
    return replace(step, **paths)
