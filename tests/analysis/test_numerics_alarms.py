"""Which layers are named, and in which order; nothing is where nothing is wrong."""

import msgspec
import pytest

from model_profiling.analysis.numerics import Gap, first_loss, gain_db
from model_profiling.report import charts
from model_profiling.report.content.numerics import rows, sentences, what_to_do
from model_profiling.report.theme import LIGHT
from tests.helpers.numerics_forge import layer, numerics

NOTHING = Gap()


def test_layers_that_lose_what_their_dtype_costs_raise_no_alarm() -> None:
    found = numerics([layer(index, 40.0 - index) for index in range(6)])
    assert found.alarms == []
    assert [each.index for each in found.worst] == [5, 4, 3, 2, 1, 0]
    assert "no layer stands out" in sentences(found)
    assert what_to_do(found)[0].startswith("nothing to fix")


def test_the_first_that_breaks_comes_first_and_those_that_inherit_it_last() -> None:
    broken = {"error": NOTHING, "added": NOTHING, "backend": NOTHING, "infinite": 3}
    layers = [
        layer(0, 50.0),
        layer(1, 10.0),
        layer(2, None, **broken),
        layer(3, None, **broken, finite_inputs=False),
    ]
    found = numerics(layers, "fp16")
    assert [alarm.kind for alarm in found.alarms] == ["not finite", "bad"]
    assert [each.index for each in found.worst] == [2, 1, 0, 3]
    assert "3 infinite values from finite inputs" in found.alarms[0].sentence
    loss = first_loss(found)
    assert loss is not None and loss.index == 2


@pytest.mark.parametrize(
    ("dtype", "worst", "kind"),
    [
        *(("int8", 14.0, "bad"), ("int8", 20.0, "stands out"), ("int8", 26.0, None)),
        *(("fp16", 19.0, "bad"), ("fp16", 29.0, "stands out"), ("fp16", 31.0, None)),
        *(("fp32", 59.0, "bad"), ("int4", 7.0, "bad"), ("int4", 13.0, None)),
    ],
)
def test_a_layer_is_named_if_it_alone_does_harm(dtype: str, worst: float, kind: str | None) -> None:
    found = numerics([layer(0, worst + 20), layer(1, worst), layer(2, worst + 21)], dtype)
    assert [alarm.kind for alarm in found.alarms] == ([kind] if kind else [])
    gain = gain_db(found, found.layers[1])
    assert gain is not None and gain > 10


def test_one_of_many_that_lose_the_same_does_not_stand_out() -> None:
    assert numerics([layer(index, 20.0) for index in range(4)]).alarms == []


def test_a_range_that_hides_most_values_is_named_although_the_outputs_are_fine() -> None:
    found = numerics([layer(0, 30.0), layer(1, 45.0, rounded_away=0.9), layer(2, 30.0, rounded_away=0.02)])
    assert [(alarm.layer.index, alarm.kind) for alarm in found.alarms] == [(1, "rounded away")]
    assert found.worst[0].index == 1
    assert "90% of its values become 0" in found.alarms[0].sentence


def test_what_the_dtype_does_not_explain_is_the_backends() -> None:
    wrong = layer(1, 5.0, added=Gap(-20.0, 0.1, 9.0))
    found = numerics([layer(0, 50.0), msgspec.structs.replace(wrong, dtype=Gap(60.0, 1.0, 0.001))], "fp16")
    assert "the backend's kernel loses it" in found.alarms[0].sentence
    same = numerics([layer(0, 50.0), msgspec.structs.replace(wrong, dtype=Gap(-19.0, 0.1, 9.0))], "fp16")
    assert "backend" not in same.alarms[0].sentence


def test_tiny_values_that_fp16_cannot_hold_are_no_alarm() -> None:
    tiny = msgspec.structs.replace(layer(1, 90.0, rounded_away=0.6), quantized=False)
    assert numerics([layer(0, 80.0), tiny], "fp16").alarms == []


def test_exact_layers_are_not_ranked_and_odd_records_can_be_drawn() -> None:
    exact = Gap(None, 1.0, 0.0)
    found = numerics([layer(0, None, added=exact, error=exact, backend=exact), layer(1, None)])
    assert [each.index for each in found.worst] == [1]
    assert len(rows(found)) == 1 and rows(found, 0) == []
    assert charts.numerics(found, charts.NARROW, LIGHT, "")["layer"]
    assert charts.numerics(numerics([]), charts.WIDE, LIGHT, "")["layer"]
