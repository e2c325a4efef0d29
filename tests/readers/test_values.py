"""Values that cannot be are refused where a file is read, so that nothing behind it has to expect them."""

import io
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_profiling.analysis.accuracy.numerics import read_numerics
from model_profiling.base.errors import InputError
from model_profiling.base.npy import read_npy
from model_profiling.formats import pte
from model_profiling.formats.pte.xnnpack_graph import graphs
from model_profiling.store.run_directory import RunDirectory
from tests.helpers import npy_forge
from tests.helpers.fuzz_readers import RUN, SEEDS, _numerics_seeds

_PROGRAM = SEEDS / "tiny_xnnpack_fp32.pte"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("config", {"experiments": [{"name": {}}]}),
        ("config", {"experiments": {}}),
        ("config", {"command": 3}),
        ("config", {"token_file": []}),
        ("environment", {"cpu": {}}),
        ("environment", {"cores": -1}),
        ("environment", {"memory_bytes": 10**400}),
        ("environment", {"load_1m_5m_15m": ["x"]}),
    ],
)
def test_a_manifest_holds_what_is_read_of_it_in_the_types_it_is_read_in(key: str, value: Any, tmp_path: Path) -> None:
    manifest = json.loads((RUN / "manifest.json").read_text())
    manifest[key] |= value
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=next(iter(value))):
        RunDirectory(tmp_path).manifest()


@pytest.mark.parametrize("path", ["", ".", "/", "a\0b"])
def test_a_manifest_names_a_model(path: str, tmp_path: Path) -> None:
    manifest = json.loads((RUN / "manifest.json").read_text())
    manifest["model"]["path"] = path
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="names no file as its model"):
        RunDirectory(tmp_path).manifest()


@pytest.mark.parametrize("link", ["manifest.json", "metrics.json", "linux_fp16arith_on", "linux_fp16arith_on/x.etdump"])
def test_nothing_is_read_through_a_link_that_leads_out_of_a_run(link: str, tmp_path: Path) -> None:
    run = shutil.copytree(RUN, tmp_path / "run")
    place = run / link
    if place.exists():
        place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="points outside"):
        RunDirectory(run).manifest()
    place.unlink()
    if (tmp_path / "elsewhere").exists():
        (tmp_path / "elsewhere").rename(run / "inside.json")
        place.symlink_to("inside.json" if "/" not in link else "../inside.json")
        RunDirectory(run).manifest()


@pytest.mark.parametrize("decibel", ["-1e308", "1e308", "-3001", "1e999", "NaN", "Infinity", '"NaN"', "{}"])
def test_a_ratio_that_no_numbers_have_is_refused(decibel: str, tmp_path: Path) -> None:
    text = _numerics_seeds()[0].decode()
    assert '"sqnr_db":10.0' in text
    (tmp_path / "n.json").write_text(text.replace('"sqnr_db":10.0', f'"sqnr_db":{decibel}'))
    with pytest.raises(InputError, match="not what the kit writes"):
        read_numerics(tmp_path / "n.json")


@pytest.mark.parametrize("axes", [(0, 0, 0, 0), (0, 2, 3, 4), (2**32 - 1, 1, 2, 3), (3, 3, 2, 1)])
def test_a_transpose_by_what_is_no_permutation_is_refused(axes: tuple[int, ...], tmp_path: Path) -> None:
    data = _PROGRAM.read_bytes()
    before = struct.pack("<5I", 4, 0, 2, 3, 1)
    assert before in data
    (tmp_path / "x.pte").write_bytes(data.replace(before, struct.pack("<5I", 4, *axes)))
    program = pte.read(tmp_path / "x.pte")
    with pytest.raises(InputError, match="no permutation"):
        [graphs(program, method) for method in program.methods]


def test_several_arrays_are_not_one(tmp_path: Path) -> None:
    held = io.BytesIO()
    np.savez(held, a=np.zeros(3), b=np.ones(2))
    (tmp_path / "x.npy").write_bytes(held.getvalue())
    with pytest.raises(InputError, match=r"not a readable \.npy"):
        read_npy(tmp_path / "x.npy", "input", "")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_array_is_read_as_numpy_wrote_it(version: int, tmp_path: Path) -> None:
    for array in (np.arange(24.0).reshape(2, 3, 4), np.float16(7), np.zeros((0, 5), np.int64), np.array([True]), ">i4"):
        wanted = np.arange(6, dtype=array) if isinstance(array, str) else np.asarray(array)
        for each in (wanted, np.asfortranarray(wanted)):
            with (tmp_path / "x.npy").open("wb") as file:
                np.lib.format.write_array(file, each, (version, 0), allow_pickle=False)
            found = read_npy(tmp_path / "x.npy", "input", "")
            assert found.dtype == each.dtype and found.shape == each.shape and np.array_equal(found, each)


@pytest.mark.parametrize("header", npy_forge.HOSTILE, ids=lambda header: header[:60])
def test_a_header_that_is_more_than_numpy_writes_is_refused(header: str, tmp_path: Path) -> None:
    for version in (1, 2, 3):
        (tmp_path / "x.npy").write_bytes(npy_forge.npy(header, version=version))
        with pytest.raises(InputError, match=r"input .* is not a readable \.npy \("):
            read_npy(tmp_path / "x.npy", "input", "")
