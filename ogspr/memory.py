"""Main memory: how much is free, and how the process deals with it. No torch."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_PROC, _CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
_NO_LIMIT = 2**62
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names that glibc gives them: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
_LARGEST = 2**30


def free_host_bytes() -> int:
    """Main memory a new process could use; the smaller of what the machine and the container leave."""
    return min(_machine_free_bytes(), _container_free_bytes())


def _machine_free_bytes() -> int:
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
    except OSError:  # all there is: what is used of it is not known
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024


def _container_free_bytes() -> int:
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
        numbers = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        cache = int(numbers.get("inactive_file", 0))  # given up when the memory is needed
    except (OSError, ValueError):
        return _NO_LIMIT
    return _NO_LIMIT if limit == "max" else max(0, int(limit) - used + cache)


def keep_freed_memory() -> None:
    """Lets glibc reuse memory that tensors gave back, instead of asking the system for fresh pages.

    On a CPU every update allocates and frees the same large tensors; with fresh pages each time it takes a
    third longer. Elsewhere than with glibc nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _LARGEST)
