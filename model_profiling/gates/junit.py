"""JUnit XML, which CI systems show as test results: one test case per comparison."""

import xml.etree.ElementTree as ET

from model_profiling.analysis.latency import Comparison
from model_profiling.gates.verdict import Judgement
from model_profiling.report.words import comparison_sentence


def junit_xml(comparisons: list[Comparison], judgements: list[Judgement]) -> str:
    """Each comparison as a test case; one that no gate judged passes and only says what it saw."""
    judged = {id(judgement.comparison): judgement for judgement in judgements}
    failures = sum(judgement.failed for judgement in judgements)
    suite = ET.Element(
        "testsuite", name="sme2-kit compare", tests=str(len(comparisons)), failures=str(failures), errors="0"
    )
    for comparison in comparisons:
        case = ET.SubElement(
            suite, "testcase", classname="sme2-kit.compare", name=f"{comparison.after} against {comparison.before}"
        )
        judgement = judged.get(id(comparison))
        said = comparison_sentence(comparison)
        if judgement is not None and judgement.failed:
            ET.SubElement(case, "failure", message=_legal(judgement.sentence)).text = _legal(said)
        output = said if judgement is None else f"{said}\n{judgement.sentence}"
        ET.SubElement(case, "system-out").text = _legal(output)
        case.set("name", _legal(case.get("name", "")))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _legal(text: str) -> str:
    """Without what XML 1.0 cannot hold at all."""
    return "".join(c if c in "\t\n" or 0x20 <= ord(c) < 0xD800 or 0xE000 <= ord(c) < 0xFFFE else "?" for c in text)
