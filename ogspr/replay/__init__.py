"""Experience: every frame stored once, stacks and windows by index, priorities next to them."""

from ogspr.replay.buffer import Replay
from ogspr.replay.storage import ReplayShape, StoragePlan, plan_storage

__all__ = ["Replay", "ReplayShape", "StoragePlan", "plan_storage"]
