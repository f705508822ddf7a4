"""`python -m ogspr.envs.ensure_gl`: exit code 0 where MuJoCo can draw, else 2 and what to install."""

from __future__ import annotations

import sys

from ogspr.envs import gl
from ogspr.errors import UserError


def main(arguments: list[str]) -> int:
    if "--debian-packages" in arguments:
        print(*gl.DEBIAN_PACKAGES)
        return 0
    try:
        gl.find()
    except UserError as error:
        if "--quiet" not in arguments:
            print(f"ogspr: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
