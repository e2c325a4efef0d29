"""Which layers are named, and in which order; nothing is where nothing is wrong."""

import msgspec
import pytest

from model_profiling.analysis.accuracy.numerics import Gap, first_loss, gain_db, helps
from model_profiling.report.charts import NARROW, WIDE
from model_profiling.report.charts.numerics import numerics as numerics_chart
from model_profiling.report.content.numerics import rows, sentences, what_to_do
from model_profiling.report.drawing.theme import LIGHT
from tests.helpers.numerics_forge import SIDES, layer, numerics, trial

NOTHING = Gap()


def test_layers_that_lose_what_their_dtype_costs_raise_no_alarm() -> None:
    found = numerics([layer(index, 40.0 - index) for index in range(6)])
    assert found.alarms == []
    assert [each.index for each in found.worst] == [5, 4, 3, 2, 1, 0]
    assert "no layer stands out" in sentences(found)
    assert what_to_do(found)[0].startswith("nothing to fix")
    # Of many that lose the same none stands out, nor do tiny values that fp16 cannot hold.
    assert numerics([layer(index, 20.0) for index in range(4)]).alarms == []
    tiny = msgspec.structs.replace(layer(1, 90.0, rounded_away=0.6), quantized=False)
    assert numerics([layer(0, 80.0), tiny], "fp16").alarms == []


def test_the_first_that_breaks_comes_first_and_those_that_inherit_it_last() -> None:
    broken = {"error": NOTHING, "added": NOTHING, "backend": NOTHING, "infinite": 3}
    layers = [layer(0, 50.0), layer(1, 10.0), layer(2, None, **broken), layer(3, None, **broken, finite_inputs=False)]
    found = numerics(layers, "fp16")
    assert [alarm.kind for alarm in found.alarms] == ["not finite", "bad"]
    assert [each.index for each in found.worst] == [2, 1, 0, 3]
    assert "3 infinite values from finite inputs" in found.alarms[0].sentence
    assert first_loss(found) is found.layers[2]
    # One that overflows behind another is named, too.
    behind = layer(3, None, **broken, finite_inputs=False, overflows=5)
    alarms = numerics([*layers[:3], behind], "fp16").alarms
    assert [alarm.layer.index for alarm in alarms] == [2, 3, 1]
    assert "5 NaN or infinite values from finite inputs" in alarms[1].sentence


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


def test_only_a_remedy_that_helps_has_a_command_and_none_is_said_twice() -> None:
    layers = [layer(0, 5.0), layer(1, 9.0), layer(2, 40.0)]
    both = ["layers.0", "layers.1"]
    tried = [trial(["layers.0"], 36.0), trial(both, 60.0), trial([*both, "layers.2"], 60.5, helps=False)]
    said = [item for item in what_to_do(numerics(layers, trials=tried)) if "layers." in item]
    assert len(said) == 3 and ["keep_fp32=" in item for item in said] == [True, True, False]
    assert "30.0 dB -> 36.0 dB with dot product on, 30.0 dB -> 36.0 dB with dot product off" in said[0]
    assert said[1].startswith("keep layers.1 in fp32 as well (tried: outputs 36.0 dB -> 60.0 dB")
    assert said[1].endswith("keep_fp32=['layers.0', 'layers.1']")
    assert said[2].startswith("keeping layers.2 in fp32 as well does not help")
    broken = what_to_do(numerics(layers, trials=[trial(both, None, False, "it does not load")]))
    assert "no remedy: it does not load" in broken[0] and not any("keep_fp32=" in item for item in broken)


def test_a_remedy_that_nobody_tried_says_so_and_names_no_layers_again() -> None:
    layers = [layer(0, 5.0), layer(1, 9.0), layer(2, 40.0)]
    layers[1] = msgspec.structs.replace(layers[1], keep=["layers.0"])
    said = [item for item in what_to_do(numerics(layers)) if "keep_fp32=" in item]
    assert len(said) == 1 and "not tried" in said[0]
    layers[1] = msgspec.structs.replace(layers[1], keep=["layers.1"])
    said = [item for item in what_to_do(numerics(layers)) if "keep_fp32=" in item]
    assert len(said) == 3 and all("not tried" in item for item in said)


@pytest.mark.parametrize(
    ("before", "after", "better"),
    [
        ((None, None), (40.0, 40.0), True),
        ((None, 34.0), (None, 34.0), False),
        ((None, 34.0), (40.0, 20.0), False),
        ((None, 34.0), (40.0, 36.0), True),
        ((None, None), (-2.0, 9.0), False),
        ((30.0, 30.0), (32.0, 32.0), False),
        ((30.0, 30.0), (34.0, 28.0), True),
        ((30.0, 30.0), (None, 30.0), False),
    ],
)
def test_a_remedy_helps_if_outputs_are_better_and_nowhere_worse(
    before: tuple[float | None, ...], after: tuple[float | None, ...], better: bool
) -> None:
    gaps = [
        dict(zip(SIDES, (NOTHING if db is None else Gap(db, 1.0, 0.1) for db in each), strict=True))
        for each in (before, after)
    ]
    assert helps(numerics([layer(0, 5.0)]), *gaps) is better


def test_nothing_can_be_kept_in_an_fp32_program() -> None:
    (sentence,) = what_to_do(numerics([layer(0, 90.0), layer(1, 20.0)], "fp32"))
    assert sentence.startswith("the program is wrong") and "--reproduce" in sentence


def test_a_line_leads_from_a_layer_to_each_that_reads_it_and_branches_stay_apart() -> None:
    errors = [60.0, 40.0, 58.0, 39.0]
    layers = [layer(index, 50.0, error=Gap(error, 1.0, 0.1)) for index, error in enumerate(errors)]
    layers = [msgspec.structs.replace(x, producers=p) for x, p in zip(layers, [[], [0], [0], [1, 2]], strict=True)]
    lines, points, *_ = numerics_chart(numerics(layers), WIDE, LIGHT, "")["layer"]
    drawn = [(line["layer"], line["reader"], line["error"], line["then"]) for line in lines["data"]["values"]]
    # Nothing leads from the bad branch (1) to the good one (2), which would look like an error that heals.
    assert drawn == [(0, 1, 60.0, 40.0), (0, 2, 60.0, 58.0), (1, 3, 40.0, 39.0), (2, 3, 58.0, 39.0)]
    assert len(points["data"]["values"]) == 4
    # A record of an earlier kit does not tell who reads what: points alone.
    earlier = numerics_chart(numerics([layer(0, 50.0), layer(1, 50.0)]), WIDE, LIGHT, "")["layer"]
    assert not earlier[0]["data"]["values"] and len(earlier[1]["data"]["values"]) == 2


def test_exact_layers_are_not_ranked_and_odd_records_can_be_drawn() -> None:
    exact = Gap(None, 1.0, 0.0)
    found = numerics([layer(0, None, added=exact, error=exact, backend=exact), layer(1, None)])
    assert [each.index for each in found.worst] == [1]
    assert len(rows(found)) == 1 and rows(found, 0) == []
    assert numerics_chart(found, NARROW, LIGHT, "")["layer"]
    assert numerics_chart(numerics([]), WIDE, LIGHT, "")["layer"]
