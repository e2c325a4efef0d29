"""The roofline picture: nothing overprints, however many operators there are, and what is above a roof is flagged."""

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from model_profiling.report.charts.frame import NARROW, WIDE, Spec
from model_profiling.report.charts.placing import Box
from model_profiling.report.charts.roofline import Label, Marker, Roof, place_labels, roofline
from model_profiling.report.content.roofline import above_sentence
from model_profiling.report.drawing import vega
from model_profiling.report.drawing.theme import LIGHT
from model_profiling.report.numbers import ABOVE_ROOF
from tests.helpers.chromium import Tab
from tests.helpers.page_fit import misfits
from tests.helpers.roof_forge import forged_roofs, forged_side


def drawn(operators: int, width: int = WIDE, **changed: Any) -> Spec:
    sides = [forged_side("fp16 arithmetic off", operators, 55, **changed), forged_side("on", operators, 100, **changed)]
    found = roofline(sides, width, LIGHT, "")
    assert found is not None
    return found


def texts(spec: Spec) -> list[str]:
    return [layer["mark"]["text"] for layer in spec["layer"] if layer["mark"]["type"] == "text"]


def touching(one: Label, other: Label) -> bool:
    return any(a.overlaps(b) for a, b in itertools.product(one.boxes, other.boxes))


@pytest.mark.parametrize("seed", range(16))
def test_no_label_is_over_another_over_a_dot_or_outside(seed: int) -> None:
    chance = random.Random(seed)
    width, height = chance.choice([690, 270]), 330
    dots = [
        Marker(chance.uniform(0, width), chance.uniform(0, height), chance.uniform(4, 13))
        for _ in range(chance.choice([1, 10, 60, 400]))
    ]
    flat = sorted(chance.uniform(20, 300) for _ in range(chance.randint(1, 5)))
    roofs = [Roof(f"roof {n} 123 GOP/s, fp16 arithmetic off", (0, y), (width, y)) for n, y in enumerate(flat)]
    left = chance.uniform(0, width / 3)
    roofs += [Roof(f"memory {n}", (left + 15 * n, height), (left + 15 * n + 150, flat[0])) for n in range(2)]
    labels = place_labels(width, height, roofs, [dot.box for dot in dots], dots[:8])
    for one, other in itertools.combinations(labels.placed, 2):
        assert not touching(one, other), (one, other)
    for label, dot in itertools.product(labels.placed, dots):
        assert not any(box.overlaps(dot.box) for box in label.boxes)
    assert all(box.inside(width, height) for label in labels.placed for box in label.boxes)
    shown = {label.text for label in labels.placed} | set(labels.letters.values())
    assert {roof.name for roof in roofs} <= shown, "a roof is named in the picture, or its letter in the legend"


def test_labels_have_a_place_where_there_is_room_and_a_letter_where_there_is_none() -> None:
    roof, dot = Roof("fp16 100 GOP/s", (0, 100), (600, 100)), Marker(300, 200, 5)
    free = place_labels(600, 330, [roof], [dot.box], [dot])
    assert {label.text for label in free.placed} == {"fp16 100 GOP/s", "1"} and not free.letters
    full = place_labels(600, 330, [roof], [Box(0, 60, 600, 80)], [dot])
    assert full.letters == {"A": "fp16 100 GOP/s"} and [label.text for label in full.placed] == ["1"]


@pytest.mark.parametrize("operators", [1, 60])
def test_numbers_are_explained_below(operators: int) -> None:
    said = texts(drawn(operators))
    numbers = [text for text in said if text.isdigit()]
    assert 1 <= len(numbers) <= 8
    for number in numbers:
        assert any(text.startswith(f"{number}: ") and text.endswith("roof") for text in said)


def test_what_is_above_its_roof_has_a_ring_and_a_reason() -> None:
    flagged, fine = drawn(60), drawn(60, above=False)
    rings = [
        [layer["data"]["values"] for layer in spec["layer"] if layer["mark"].get("size") == 340.0]
        for spec in (flagged, fine)
    ]
    assert rings[0][0] and not rings[1][0]
    assert all(float(dot["rate"]) > 0 and dot["roof"] == "above" for dot in rings[0][0])
    assert any(
        f"rings: {len(rings[0][0])} above the roof: a roof measured on a busy" in text for text in texts(flagged)
    )
    assert not any("rings" in text for text in texts(fine))


def test_a_report_says_what_it_means_to_be_above_a_roof() -> None:
    side, rates = forged_side("on", 60), forged_roofs().rates((), 1, "fp16")
    above = [entry for entry in side.roofline.operators if entry.of_roof > ABOVE_ROOF]
    said = above_sentence(above, rates)
    assert said.startswith(f"{len(above)} operators are above the roof, up to 1.")
    for reason in (
        "nearer cache",
        "count of their operations is wrong",
        "busy machine",
        "load 0.1",
        "`sme2-kit roofs`",
    ):
        assert reason in said
    assert above_sentence(above[:1], None).startswith("1 operator is above the roof") and "load" not in said[:60]


@pytest.mark.wide
def test_a_browser_shows_every_text_by_itself(tab: Tab, tmp_path: Path) -> None:
    head = "<!DOCTYPE html><meta charset=utf-8><style>svg{max-width:100%}</style>"
    for count in (3, 60):
        for width in (WIDE, NARROW):
            page = tmp_path / f"{count}_{width}.html"
            page.write_text(f"{head}<figure>{vega.svg(drawn(count, width))}</figure>")
            tab.open(page)
            assert misfits(tab, 1400) == [], (count, width)
