"""Closing what is still open when the interpreter ends, in the right order and without noise."""

from __future__ import annotations

import atexit
import weakref
from typing import Any, Protocol


class Closable(Protocol):
    def close(self) -> None: ...


_open: weakref.WeakSet[Any] = weakref.WeakSet()


def close_at_exit(resource: Closable) -> None:
    """Closes `resource` at interpreter exit, unless it is gone by then. `close` may run twice.

    Exit handlers run last-in-first-out, and a resource must go before the library it belongs to:
    registering again each time keeps this handler in front of those that libraries registered
    when the resource was made.
    """
    _open.add(resource)
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    for resource in list(_open):
        resource.close()
