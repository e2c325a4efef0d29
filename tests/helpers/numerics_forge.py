"""A record of numerics as `sme2-kit numerics` writes it, made by hand: any errors, in any order."""

from model_profiling.analysis.accuracy.numerics import Gap, Layer, LayerSide, Numerics, Trial, Variant

SIDES = ("linux_dot_on", "linux_dot_off")


def layer(index: int, alone: float | None, **of_side: object) -> Layer:
    """A layer that alone takes the outputs to so many decibel; the rest of its side is as given."""
    settings = {"error": Gap(30.0, 0.99, 0.1), "added": Gap(35.0, 0.99, 0.1), "backend": Gap(50.0, 1.0, 0.01)} | of_side
    own = LayerSide(low=-1.0, high=1.0, alone=None if alone is None else Gap(alone, 1.0, 0.1), **settings)  # type: ignore[arg-type]
    return Layer(
        index=index,
        name=f"linear_{index}",
        nodes=[f"linear_{index}"],
        operator="aten.linear.default",
        module=f"layers.{index}",
        module_type="Linear",
        source=f"net.py:{index}",
        shape=[1, 8],
        fused=["relu"] if index % 2 else [],
        low=-1.0,
        high=1.0,
        dtype=Gap(33.0, 0.99, 0.1),
        sides=dict.fromkeys(SIDES, own),
        quantized=True,
        keep=[f"layers.{index}"],
        place=f"layers.{index}",
    )


def trial(keep: list[str], sqnr_db: float | None, helps: bool = True, failure: str = "") -> Trial:
    """A remedy that gives so many decibel on all sides; None for NaN."""
    gave = Gap() if sqnr_db is None else Gap(sqnr_db, 1.0, 0.1)
    return Trial(keep, {} if failure else dict.fromkeys(SIDES, gave), helps, failure)


def numerics(layers: list[Layer], dtype: str = "int8", sha256: str = "", trials: list[Trial] | None = None) -> Numerics:
    outputs = Gap(30.0, 0.999, 0.1)
    variants = [Variant(SIDES[0], "dot product on", [], outputs, outputs)]
    variants.append(Variant(SIDES[1], "dot product off", ["dot"], outputs, outputs))
    looked = sum(each.sides[SIDES[0]].alone is not None for each in layers)
    return Numerics("net", dtype, "linux", "measured", sha256, variants, layers, {}, looked, looked, trials=trials)
