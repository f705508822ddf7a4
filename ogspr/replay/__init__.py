"""Experience: every frame stored once, stacks and windows by index, priorities beside them."""

from ogspr.replay.buffer import Replay
from ogspr.replay.plan import StoragePlan, plan_storage
from ogspr.replay.shape import ReplayShape

__all__ = ["Replay", "ReplayShape", "StoragePlan", "plan_storage"]
