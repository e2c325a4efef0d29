"""How long work tells how far it is: called with what is being done, how much of it is done, and how much there is."""

from collections.abc import Callable

OnProgress = Callable[[str, int, int], None]
