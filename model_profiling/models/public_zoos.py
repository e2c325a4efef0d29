"""Models of other zoos by their own names: `timm:resnet18`, `torchvision:resnet18`, `hf:BertModel`.

Weights are random unless `pretrained` is set or a checkpoint is given; inputs come from the model's own configuration.
"""

import difflib
import importlib
import importlib.metadata
import importlib.util
import inspect
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from model_profiling.base.errors import InputError, SetupError

# The package that each zoo comes in, by the prefix of its models.
ZOOS = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}
# What is made small of a configuration that nobody trained: so many layers of each kind, by the name of the setting.
_FEW, _LAYERS = 2, r"(num_.*hidden_layers|num_layers|n_layers?|.*coder_layers|num_decoder_layers)$"
_FRAMES = 16


def zoo_name(text: str) -> tuple[str, str] | None:
    """Return the zoo and the name of `timm:resnet18`; None if it names no zoo."""
    zoo, colon, name = text.partition(":")
    return (zoo, name) if colon and zoo in ZOOS and name else None


def artifact_name(zoo: str, name: str) -> str:
    """Return what files of the model are called: `resnet18_a1_in1k` of `resnet18.a1_in1k`."""
    last = Path(name).name if zoo == "hf" else name
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", last).lower().strip("_") or zoo


def require(zoo: str) -> None:
    """Refuse a zoo whose package is missing, with the line that installs it and keeps the torch that is there."""
    package = ZOOS[zoo]
    if importlib.util.find_spec(package) is not None:
        return
    torch = importlib.metadata.version("torch").split("+")[0]
    # timm needs torchvision, too, and each of its releases goes with one of torch.
    fits = f"'torchvision==0.{int(torch.split('.')[1]) + 15}.*'"
    wanted = {"timm": f"timm 'torch=={torch}' {fits}", "torchvision": f"'torch=={torch}' {fits}"}
    wanted["hf"] = f"transformers 'torch=={torch}'"
    raise SetupError(f"models of {zoo} need {package}, which is not installed", f"pip install {wanted[zoo]}")


def names(zoo: str, pattern: str) -> list[str]:
    """Return the models of a zoo whose names fit a pattern such as `mobilenet*`."""
    from model_profiling.models.torch_companions import watch_imports

    require(zoo)
    watch_imports()
    found = [name for name in _known(zoo) if fnmatch(name.lower(), pattern.lower())]
    if not found:
        raise InputError(
            f"{ZOOS[zoo]} has no model {pattern!r}", f"A pattern such as '*{pattern.strip('*')}*' finds more."
        )
    return found


def _known(zoo: str) -> list[str]:
    package = importlib.import_module(ZOOS[zoo])
    if zoo == "hf":
        # Neither classes that choose one by a name nor those that others are made from.
        made = r"^(?!TF|Flax|Auto)(?!\w*PreTrainedModel).*(Model|For[A-Z]\w+)$"
        return [name for name in dir(package) if re.search(made, name)]
    return sorted(package.list_models() if zoo == "timm" else package.models.list_models())


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(close)}? " if close else ""


class ZooModel:
    """Keeps EagerModelBase's contract for a model of a zoo."""

    weights = "random"

    def __init__(self, zoo: str, name: str, settings: dict[str, Any]) -> None:
        require(zoo)
        self._zoo, self._name = zoo, name
        self._settings = dict(settings)
        self._pretrained = bool(self._settings.pop("pretrained", False))
        if self._pretrained:
            self.weights = f"pretrained, as {ZOOS[zoo]} has them"
        self._module: Any = None

    def get_eager_model(self) -> Any:
        self._module = getattr(self, f"_{self._zoo}")()
        if self._zoo == "hf":
            for part in self._module.modules():  # a decoder may have a configuration of its own
                if hasattr(getattr(part, "config", None), "use_cache"):
                    part.config.use_cache = False
        return self._module.eval()

    def get_example_inputs(self) -> tuple[Any, ...]:
        import torch

        if self._zoo == "hf":
            return ()
        if self._zoo == "timm":
            known = getattr(self._module, "pretrained_cfg", None) or getattr(self._module, "default_cfg", {})
            return (torch.randn(1, *known.get("input_size", (3, 224, 224))),)
        return self._torchvision_inputs()

    def get_example_kwarg_inputs(self) -> dict[str, Any]:
        from model_profiling.models.transformers_inputs import inputs_of

        return inputs_of(self._module) if self._zoo == "hf" else {}

    def _unknown(self) -> InputError:
        listed = f"`sme2-kit models --zoo {self._zoo} '*'` lists them."
        said = f"{ZOOS[self._zoo]} has no model {self._name!r}"
        return InputError(said, f"{_meant(self._name, _known(self._zoo))}{listed}")

    def _timm(self) -> Any:
        import timm

        if not timm.is_model(self._name.split(".")[0]):
            raise self._unknown()
        return timm.create_model(self._name, pretrained=self._pretrained, **self._settings)

    def _torchvision(self) -> Any:
        from torchvision import models

        if self._name not in models.list_models():
            raise self._unknown()
        takes = inspect.signature(models.get_model_builder(self._name)).parameters
        # Without a word, its backbone would be fetched.
        backbone = {"weights_backbone": None} if "weights_backbone" in takes and not self._pretrained else {}
        weights = "DEFAULT" if self._pretrained else None
        return models.get_model(self._name, weights=weights, **{**backbone, **self._settings})

    def _torchvision_inputs(self) -> tuple[Any, ...]:
        import torch
        from torchvision import models

        known = models.get_model_weights(self._name).DEFAULT.transforms()
        kind = models.get_model_builder(self._name).__module__.split(".")[2]
        size = next((got for part in ("crop_size", "resize_size") if (got := getattr(known, part, None))), [224])
        image = [*size, *size][:2]
        if kind == "detection":
            side = int(found[1]) if (found := re.search(r"_?(300|320|512)", self._name)) else 320
            return ([torch.rand(3, side, side)],)
        if kind == "optical_flow":
            return (torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128))
        return (torch.randn(1, 3, *([_FRAMES] if kind == "video" else []), *image),)

    def _hf(self) -> Any:
        import transformers

        made = getattr(transformers, self._name, None)
        if Path(self._name).is_dir() or made is None:
            if re.fullmatch(r"[A-Z]\w+(Model|For[A-Z]\w+)", self._name) and not Path(self._name).is_dir():
                raise self._unknown()
            return self._hf_configured(transformers)
        kind = getattr(made, "config_class", None)
        if kind is None or self._pretrained:
            what = "has no weights of its own" if kind is not None else "is no class of a model"
            raise InputError(f"{self._name} of transformers {what}", "Name a folder, or a class such as hf:BertModel.")
        config = kind()
        parts = [config, *(getattr(config, name, None) for name in getattr(kind, "sub_configs", {}))]
        for part in filter(None, parts):  # such as a backbone, which not every configuration names
            for key, value in vars(part).items():
                if re.search(_LAYERS, key) and isinstance(value, int):
                    # What a later part takes from between layers has to be there.
                    taken = [_FEW - 1, *(getattr(part, "backbone_out_indices", None) or ())]
                    setattr(part, key, min(value, max(taken) + 1))
        for key, value in self._settings.items():
            if not hasattr(config, key):
                hint = f"{_meant(key, [*vars(config)])}The settings are those of {kind.__name__}."
                raise InputError(f"the configuration of {self._name} has no {key!r}", hint)
            setattr(config, key, value)
        return made(config)

    def _hf_configured(self, transformers: Any) -> Any:
        """Make the model of a folder's configuration, or of a name whose configuration can be had."""
        try:
            config = transformers.AutoConfig.from_pretrained(self._name, **self._settings)
        except (OSError, ValueError) as error:
            text = str(error).strip().splitlines()[0][:200]
            raise InputError(
                f"transformers has no configuration of {self._name!r} here: {text}",
                "Give a folder with its config.json, hf:path/to/folder, or a class of transformers, hf:BertModel.",
            ) from None
        auto = transformers.AutoModel
        return auto.from_pretrained(self._name) if self._pretrained else auto.from_config(config)
