"""JUnit XML, which CI systems show as test results: one test case per comparison."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.base.visible import visible
from model_profiling.gates.job_summary import comparison_title
from model_profiling.gates.verdict import Gate, Judgement
from model_profiling.report import metric_columns


def junit_xml(results: Sequence[PairComparison], judgements: list[Judgement]) -> str:
    """Return each comparison as a test case; one that no gate judged passes and only says what it saw. What start-up
    and memory are judged for are cases of their own."""
    suite = ET.Element("testsuite", name="sme2-kit compare")
    for result in results:
        mine = {judgement.gate: judgement for judgement in judgements if judgement.of(result)}
        _add_metrics(_add_case(suite, result, "latency", mine.pop("latency", None)), result)
        for gate, judgement in mine.items():
            _add_case(suite, result, gate, judgement)
    counts = {"tests": len(suite), "failures": sum(judgement.failed for judgement in judgements), "errors": 0}
    for name, count in counts.items():
        suite.set(name, str(count))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _add_case(suite: ET.Element, result: PairComparison, gate: Gate, judgement: Judgement | None) -> ET.Element:
    comparison = result.latency
    what = "" if gate == "latency" else f": {gate}"
    name = visible(f"{comparison.after} against {comparison.before}{what}")
    case = ET.SubElement(suite, "testcase", classname="sme2-kit.compare", name=name)
    told = comparison_title(result, gate)
    if judgement is not None and judgement.failed:
        ET.SubElement(case, "failure", message=visible(judgement.sentence)).text = visible(told)
    output = told if judgement is None else f"{told}\n{judgement.sentence}"
    ET.SubElement(case, "system-out").text = visible(output)
    return case


def _add_metrics(case: ET.Element, result: PairComparison) -> None:
    """Add the metrics of both sides as properties: CI systems show them, and some draw them over time."""
    if result.before is None or result.after is None:
        return
    properties = ET.Element("properties")
    case.insert(0, properties)
    for side, measured in (("before", result.before), ("after", result.after)):
        for column in metric_columns.columns("short", "full", phases=True):
            value = column.value(measured)
            if value is not None:
                ET.SubElement(properties, "property", name=f"{side}.{column.key}", value=repr(value))
