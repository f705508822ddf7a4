"""The page in a browser: one HTML file that holds its style, its script and the document it shows.

Nothing is fetched from anywhere, and what runs are called cannot become markup or code: the document is inert
JSON, the script makes text of it, and a content policy refuses every script but the page's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from ogspr.report.document import Document

# In this order: each file uses what those before it have put into `ogspr`.
_SCRIPTS = (
    "dom.js",
    "numbers.js",
    "state.js",
    "methods.js",
    "tip.js",
    "chart.js",
    "controls.js",
    "grid.js",
    "tree.js",
    "runs.js",
    "curves.js",
    "tables.js",
    "overview.js",
    "live.js",
    "main.js",
)
_TITLE = "ogspr"
# Inside a script element these would end it, or hide the rest of the page.
_INERT = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026"}


def page(document: Document | None, *, live: str | None = None) -> str:
    """One HTML file.

    Args:
        document: What it shows; None while nothing is known.
        live: Where the script fetches the document anew every few seconds, beside the page's own address
            (`data.json`, with what `document_json` returns). None: the page never asks for anything.
    """
    style, script = _asset("style.css"), "\n".join(_asset(name) for name in _SCRIPTS)
    return Template(_asset("page.html")).substitute(
        title=_attribute(document["title"] if document else _TITLE),
        policy=_attribute(_policy(style, script, document, live)),
        live=_attribute(live or ""),
        style=style,
        script=script,
        document=document_json(document).translate(_INERT),
    )


def document_json(document: Document | None) -> str:
    """ASCII and without NaN and infinities, which are no JSON: they become null."""
    try:
        return _dumped(document)
    except ValueError:  # rarely needed and slow for large documents
        return _dumped(_finite(document))


def _dumped(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _policy(style: str, script: str, document: Document | None, live: str | None) -> str:
    """What the browser may do for this page. Films that lie beside it are the only files it may load."""
    beside = " 'self' file:" if live or _has_films_beside(document) else ""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_fingerprint(script)}",
            f"style-src {_fingerprint(style)}",
            f"img-src data:{beside}",
            f"media-src data:{beside}",
            "connect-src 'self'" if live else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _has_films_beside(document: Document | None) -> bool:
    videos = (video for run in (document["runs"] if document else ()) for video in run["videos"])
    return any(not video["source"].startswith("data:") for video in videos)


def _fingerprint(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _attribute(text: str) -> str:
    """Escaped; halves of characters, which names of folders can hold, would not fit into a UTF-8 file."""
    return escape(text.encode(errors="replace").decode())


@cache
def _asset(name: str) -> str:
    return (files("ogspr.report") / "assets" / name).read_text(encoding="utf-8")
