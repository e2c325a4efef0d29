"""Restores what an export changes in the caller's process: random state, garbage collection and the like.

A notebook or a training script goes on after an export. Its random numbers, default dtype, grad mode, threads and
garbage collection are then what they would be without it.
"""

import contextlib
import gc
import random
import threading
from collections.abc import Iterator

import numpy as np
import torch

# What is put back belongs to the whole process: two exports at once would put back each other's changes.
_one_at_a_time = threading.RLock()


@contextlib.contextmanager
def host_untouched(seed: int) -> Iterator[None]:
    """Run the block with a random generator of its own; afterwards the process is as it was."""
    with _one_at_a_time, torch.random.fork_rng(devices=[]), _settings_kept(), _collecting_rarely():
        # Only this generator: torch.manual_seed would seed those of all devices, and nothing puts them back.
        torch.default_generator.manual_seed(seed)
        # A caller in inference mode makes tensors that torch.export cannot trace.
        with torch.inference_mode(False):
            yield


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    dtype, threads, grad = torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()
    plain, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        random.setstate(plain)
        np.random.set_state(numpy)


@contextlib.contextmanager
def _collecting_rarely() -> Iterator[None]:
    """Collect garbage rarely: among the millions of objects that lowering keeps it takes 7 % of an export."""
    before = gc.get_threshold()
    # There is one frozen generation: to unfreeze ours would unfreeze what the caller froze.
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.freeze()
    if before[0]:
        gc.set_threshold(200_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if ours:
            gc.unfreeze()
