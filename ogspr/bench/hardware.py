"""What a number was measured on, in one line."""

from __future__ import annotations

import os
import platform

import torch


def hardware_line(device: torch.device) -> str:
    computes = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
    return f"{computes}, {os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
