"""How the process deals with main memory."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names that glibc gives them: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
_LARGEST = 2**30


def keep_freed_memory() -> None:
    """Lets glibc reuse memory that tensors gave back, instead of asking the system for fresh pages.

    On a CPU every update allocates and frees the same large tensors; with fresh pages each time it takes a
    third longer. Elsewhere than with glibc nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _LARGEST)
