"""torchvision and torchaudio of another torch are refused before their code runs, whoever imports them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from model_profiling.base.errors import SetupError
from model_profiling.models.loading import load_model

MINOR = int(torch.__version__.split(".")[1])
MODEL = "import torch\nimport {name}\ndef Net():\n    return torch.nn.Linear(2, 2)\n"


@pytest.mark.parametrize(("name", "fits"), [("torchvision", f"0.{MINOR + 15}"), ("torchaudio", f"2.{MINOR}")])
def test_a_package_for_another_torch_is_refused_when_a_users_file_imports_it(
    name: str, fits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path, name, f"torch (==2.{MINOR - 1}.0)", "import os\nos.abort()\n")
    (tmp_path / "net.py").write_text(MODEL.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    for each in [each for each in sys.modules if each.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, each)
    with pytest.raises(
        SetupError, match=rf"{name} 9\.9 is made for torch 2\.{MINOR - 1}, and torch 2\.{MINOR}"
    ) as caught:
        load_model(f"{tmp_path / 'net.py'}:Net")
    assert f"pip install '{name}=={fits}.*' 'torch==2.{MINOR}" in caught.value.hint


def test_a_library_that_can_be_loaded_brings_its_operators_itself(tmp_path: Path) -> None:
    """Its operators are never declared before it: torch ends the process for that."""
    package(tmp_path, "torchvision", f"torch (==2.{MINOR}.0)", "import torch\nprint(torch.ops.torchvision.nms)\n")
    (tmp_path / "torchvision" / "_C.so").write_bytes(b"")
    code = (
        "import sys, torch\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from model_profiling.models.torch_companions import watch_imports\n"
        "def load(path):\n"
        "    global library\n"
        "    library = torch.library.Library('torchvision', 'DEF')\n"
        "    library.define('nms(Tensor a) -> Tensor')\n"
        "torch.ops.load_library = load\n"
        "watch_imports()\n"
        "import torchvision\n"
        "print(torch.ops.torchvision.nms.default._schema)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "nms(Tensor a) -> Tensor" in done.stdout, done.stderr


def package(folder: Path, name: str, requires: str, code: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)
    metadata = folder / f"{name}-9.9.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\nRequires-Dist: {requires}\n"
    )
