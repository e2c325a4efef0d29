"""The program of a run beside the same model exported with `--rewrite auto`: what `profile` measured of the two."""

import msgspec

from model_profiling.analysis.compare.comparison import PairComparison
from model_profiling.store.artifacts import RewriteChoice


class AutoComparison(msgspec.Struct, frozen=True, tag="auto_comparison", tag_field="kind"):
    """`pte_sha256` is the program of the run, `auto_sha256` the one at `pte` with `choices` applied.

    `pairs` has one comparison, of a language model one for each phase; none where `reason` says why.
    """

    pte_sha256: str
    pte: str = ""
    auto_sha256: str = ""
    choices: list[RewriteChoice] = []
    pairs: list[PairComparison] = []
    reason: str = ""
    schema: int = 1

    @property
    def outputs_agree(self) -> bool | None:
        """Whether the outputs of both programs are right, against eager PyTorch; None if nobody could compare them."""
        verdicts = [each.verdict for pair in self.pairs for each in pair.accuracy]
        return all(verdict == "agrees" for verdict in verdicts) if verdicts else None
