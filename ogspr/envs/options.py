"""What a user may change about an environment."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ogspr.errors import UserError, require_positive

_LARGEST_IMAGE = 2048  # beyond this some drivers cannot draw any more


@dataclass(frozen=True)
class EnvOptions:
    """How an environment is shown to the agent. None stands for what the paper has."""

    image_size: int = 84
    """Height and width of the observation in pixels."""
    frame_stack: int | None = None
    """Frames in one observation; None: 3 in colour and 4 in grey."""
    action_repeat: int | None = None
    """Simulator frames for which each action is repeated; None: 2 for dmc, 4 for atari, else 1."""
    camera: int | None = None
    """dmc only: number of the camera; None: 0, for the quadruped 2."""
    shadows: bool | None = None
    """dmc only: whether shadows are rendered; None: yes. Without them a CPU renders 2 to 5 times as fast, but
    scores must not be compared with published ones."""
    atari_protocol: str | None = None
    """atari only: atari100k, ogspr (the same, with lost lives and FIRE as in its authors' code) or
    machado2018; None: atari100k."""
    noops: int | None = None
    """atari only: largest number of no-op frames before an episode; None: as in the protocol."""
    sign_rewards: bool | None = None
    """atari only: training sees the signs of rewards; None: yes, unless the preset says otherwise."""
    life_loss: bool | None = None
    """atari only: in training a lost life is terminal, but the game continues; None: as in the protocol."""
    fire: bool | None = None
    """atari only: FIRE is pressed when a game starts and after a lost life; None: as in the protocol."""

    def __post_init__(self) -> None:
        require_positive(
            image_size=self.image_size, frame_stack=self.frame_stack, action_repeat=self.action_repeat
        )
        if self.image_size > _LARGEST_IMAGE:
            raise UserError(f"image size must be at most {_LARGEST_IMAGE}, got {self.image_size}.")
        for name in ("camera", "noops"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UserError(f"{name} must be 0 or more, got {value}.")

    def refuse_except(self, suite: str, *usable: str) -> None:
        """Refuses options that `suite` would silently ignore."""
        for option in fields(self):
            given = getattr(self, option.name) != option.default
            if given and option.name not in usable:
                raise UserError(
                    f"the option {option.name.replace('_', '-')} does not apply to {suite} environments; "
                    "omit it."
                )
