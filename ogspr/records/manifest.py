"""What has to be known about a result to read it years later."""

from __future__ import annotations

import json
import platform
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ogspr._version import __version__
from ogspr.records.files import writing
from ogspr.types import EnvSpec


def manifest(spec: EnvSpec, **settings: Any) -> dict[str, Any]:
    """Environment, protocol, versions and the command line, as JSON values."""
    return {
        "ogspr": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": shlex.join(["ogspr", *sys.argv[1:]]),
        "environment": asdict(spec),
        "settings": settings,
    }


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    path = folder / "manifest.json"
    with writing(path):
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
