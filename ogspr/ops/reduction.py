"""How errors become one number: the choices, without torch, so that a command line can offer them."""

from typing import Literal

Reduction = Literal["mean", "sum"]
