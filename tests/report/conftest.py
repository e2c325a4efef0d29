"""What tests of reports share: a browser."""

import importlib.util
from collections.abc import Iterator

import pytest

from tests.conftest import needs
from tests.helpers.chromium import BINARY, Tab, chromium


@pytest.fixture(scope="module")
def tab(request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A page of a browser, started with the flags that the module names in BROWSER_FLAGS."""
    needs(BINARY is not None, "chromium")
    needs(importlib.util.find_spec("websocket") is not None, "websocket-client")
    with chromium(*getattr(request.module, "BROWSER_FLAGS", ())) as opened:
        yield opened
