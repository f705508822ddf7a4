"""What a number was measured on, and with which code, in one line."""

from __future__ import annotations

import os
import platform

import torch

from ogspr.records.manifest import code_version


def hardware_line(device: torch.device) -> str:
    computes = torch.cuda.get_device_name(device) if device.type == "cuda" else "no GPU"
    versions = f"torch {torch.__version__}, {code_version()}"
    return f"{computes}, {os.cpu_count()} cores, {platform.machine()}, {versions}"
