"""The random generators of the process. The package draws from none of them; environments of users may."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_generators(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def generator_states() -> dict[str, Any]:
    """JSON values and arrays."""
    version, numbers, gauss = random.getstate()
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "python": {"version": version, "numbers": np.array(numbers, np.uint32), "gauss": gauss},
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state().numpy(),
        "cuda": [state.numpy() for state in on_gpus],
    }


def set_generator_states(states: dict[str, Any]) -> None:
    python = states["python"]
    random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
    np.random.set_state(states["numpy"])
    torch.set_rng_state(torch.from_numpy(states["torch"]))
    if torch.cuda.is_available() and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([torch.from_numpy(state) for state in states["cuda"]])
