"""How far the next-token distributions of two models part, and how well one predicts a text."""

import numpy as np
import numpy.typing as npt

from model_profiling.analysis.accuracy.agreement import Array


def _log_probabilities(logits: Array) -> npt.NDArray[np.float64]:
    values = logits.astype(np.float64)
    shifted = values - values.max(axis=-1, keepdims=True)
    found: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def kl_divergence(reference: Array, ours: Array) -> float | None:
    """Return the KL divergence of our next-token distribution from the reference's, in nats; None for NaN."""
    if reference.shape != ours.shape or not (np.isfinite(reference).all() and np.isfinite(ours).all()):
        return None
    theirs, mine = _log_probabilities(reference), _log_probabilities(ours)
    return max(0.0, float((np.exp(theirs) * (theirs - mine)).sum()))
