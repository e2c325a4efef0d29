"""JUnit XML, which CI systems show as test results: one test case per comparison."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from model_profiling.analysis.comparison import PairComparison
from model_profiling.gates.verdict import Judgement
from model_profiling.report import metric_columns
from model_profiling.report.words import comparison_sentence


def junit_xml(results: Sequence[PairComparison], judgements: list[Judgement]) -> str:
    """Each comparison as a test case; one that no gate judged passes and only says what it saw."""
    judged = {id(judgement.comparison): judgement for judgement in judgements}
    failures = sum(judgement.failed for judgement in judgements)
    suite = ET.Element(
        "testsuite", name="sme2-kit compare", tests=str(len(results)), failures=str(failures), errors="0"
    )
    for result in results:
        comparison = result.latency
        case = ET.SubElement(
            suite, "testcase", classname="sme2-kit.compare", name=f"{comparison.after} against {comparison.before}"
        )
        _add_metrics(case, result)
        judgement = judged.get(id(comparison))
        said = comparison_sentence(comparison)
        if judgement is not None and judgement.failed:
            ET.SubElement(case, "failure", message=_legal(judgement.sentence)).text = _legal(said)
        output = said if judgement is None else f"{said}\n{judgement.sentence}"
        ET.SubElement(case, "system-out").text = _legal(output)
        case.set("name", _legal(case.get("name", "")))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _add_metrics(case: ET.Element, result: PairComparison) -> None:
    """The metrics of both sides as properties: CI systems show them, and some draw them over time."""
    if result.before is None or result.after is None:
        return
    properties = ET.SubElement(case, "properties")
    for side, measured in (("before", result.before), ("after", result.after)):
        for column in metric_columns.columns("short", "full"):
            value = column.value(measured)
            if value is not None:
                ET.SubElement(properties, "property", name=f"{side}.{column.key}", value=repr(value))


def _legal(text: str) -> str:
    """Without what XML 1.0 cannot hold at all."""
    return "".join(c if c in "\t\n" or 0x20 <= ord(c) < 0xD800 or 0xE000 <= ord(c) < 0xFFFE else "?" for c in text)
