"""OG-SPR: observation-grounded self-predictive representations. What is exported here needs no torch."""

from ogspr.agents.ogspr.config import OGSPRConfig, Sizes, preset, preset_names

__all__ = ["OGSPRConfig", "Sizes", "preset", "preset_names"]
