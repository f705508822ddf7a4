"""`python -m ogspr` is the command `ogspr`."""

import os
import sys


def _leave_out_current_folder() -> None:
    """Python has put it before all other places to look for modules; from here on it is none of them."""
    try:
        here = os.getcwd()  # noqa: PTH109  # pathlib would be looked for there, too
    except OSError:  # it is gone
        return
    if sys.flags.safe_path or sys.path[:1] != [here]:
        return
    del sys.path[0]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    if root not in sys.path:  # not installed: workers have to find this package all the same
        sys.path.append(root)


if __name__ == "__main__":
    _leave_out_current_folder()
    from ogspr.cli import main

    main()
