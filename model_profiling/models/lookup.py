"""Is there a model of that name? Answered before torch is imported, so that a typing error costs no waiting."""

import difflib

from model_profiling.errors import InputError
from model_profiling.models import failed_folders, registered_models
from model_profiling.models.zoo import zoo_models


def check_name(name: str) -> None:
    """Refuse a name that nobody registered, and suggest the closest ones."""
    known = [*registered_models(), *failed_folders(), *zoo_models()]
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    raise InputError(
        f"there is no model called {name!r}",
        f"Did you mean {' or '.join(close)}?" if close else "`sme2-kit models` lists what there is.",
    )
