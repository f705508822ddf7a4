"""OG-SPR: observation-grounded self-predictive representations."""

from ogspr.agents.ogspr.agent import OGSPRAgent
from ogspr.agents.ogspr.config import OGSPRConfig, Sizes
from ogspr.agents.ogspr.presets import preset, preset_names

__all__ = ["OGSPRAgent", "OGSPRConfig", "Sizes", "preset", "preset_names"]
