"""Atari games on the Arcade Learning Environment itself, by a named protocol.

Written on `ALEInterface` because gymnasium's wrappers restart the game after a lost life and show
an old frame where a step ends early. Nothing here needs OpenGL.

The protocol `ogspr` is that of OG-SPR's authors, but for what else their wrappers do: a step without action
after a lost life, a step with the third action after FIRE, and a frame stack that starts over. Here the game
simply goes on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any, cast

import numpy as np

from ogspr.envs.options import EnvOptions
from ogspr.envs.pixels import PixelEnvironment, sign, unchanged
from ogspr.envs.protocol import RawStep
from ogspr.envs.tasks import AtariGame, atari_games
from ogspr.errors import UserError, unknown
from ogspr.types import Action, DiscreteActions, EnvSpec, Snapshot, UInt8Array

_NOOP, _FIRE = 0, 1


@dataclass(frozen=True)
class AtariProtocol:
    """Everything that decides what an Atari score means."""

    action_repeat: int
    sticky_actions: float  # probability that the emulator repeats the previous action instead
    full_action_set: bool  # all 18 actions, or only those the game distinguishes
    noops: int  # at most this many no-op frames before an episode
    frame_cap: int  # emulator frames after which an episode is truncated
    sign_rewards: bool  # presets: in training; environments: whether this one does. Scores never are.
    terminal_on_life_loss: bool  # likewise: the learner sees lost lives as terminal, but the game continues
    fire: bool  # FIRE is pressed for one action repeat as a game begins and after a lost life


_ATARI100K = AtariProtocol(
    action_repeat=4,
    sticky_actions=0.0,
    full_action_set=False,
    noops=30,
    frame_cap=108_000,
    sign_rewards=True,
    terminal_on_life_loss=False,
    fire=False,
)
PROTOCOLS = {
    # 100k agent steps of Kaiser et al. 2020, as used by SPR and the methods compared with it.
    "atari100k": _ATARI100K,
    # What the public code of OG-SPR's authors adds to it.
    "ogspr": replace(_ATARI100K, terminal_on_life_loss=True, fire=True),
    # Recommendations of Machado et al. 2018: sticky actions instead of random starts, every action,
    # five-minute episodes.
    "machado2018": AtariProtocol(
        action_repeat=5,
        sticky_actions=0.25,
        full_action_set=True,
        noops=0,
        frame_cap=18_000,
        sign_rewards=True,
        terminal_on_life_loss=False,
        fire=False,
    ),
}


def resolve_protocol(options: EnvOptions) -> tuple[str, AtariProtocol]:
    """The protocol the options name, with what they change."""
    name = options.atari_protocol or "atari100k"
    if name not in PROTOCOLS:
        raise unknown("Atari protocol", name, PROTOCOLS)
    protocol = PROTOCOLS[name]
    given: dict[str, Any] = {
        "action_repeat": options.action_repeat,
        "noops": options.noops,
        "sign_rewards": options.sign_rewards,
        "terminal_on_life_loss": options.life_loss,
        "fire": options.fire,
    }
    return name, replace(protocol, **{field: value for field, value in given.items() if value is not None})


def check(name: str, options: EnvOptions) -> None:
    """A UserError where `atari:<Game>` cannot be made, as far as that is known without the emulator."""
    own = ("atari_protocol", "noops", "sign_rewards", "life_loss", "fire")
    options.refuse_except("atari", "image_size", "frame_stack", "action_repeat", *own)
    games = [game.name for game in atari_games()]
    if name not in games:
        raise unknown("Atari game", name, games, hint="`ogspr tasks atari` lists them.", prefix="atari:")
    resolve_protocol(options)


def make(name: str, seed: int, training: bool, options: EnvOptions) -> PixelEnvironment:
    """The environment `atari:<Game>`; only training may see the sign of rewards, and lost lives."""
    check(name, options)
    preset, protocol = resolve_protocol(options)
    protocol = replace(
        protocol,
        sign_rewards=training and protocol.sign_rewards,
        terminal_on_life_loss=training and protocol.terminal_on_life_loss,
    )
    source = AtariSource(
        next(game for game in atari_games() if game.name == name),
        preset,
        protocol,
        seed=seed,
        image_size=options.image_size,
        frame_stack=options.frame_stack or 4,
    )
    return PixelEnvironment(source, sign if protocol.sign_rewards else unchanged)


class AtariSource:
    """One game as a `FrameSource`. An episode is a whole game: losing a life does not end it."""

    def __init__(
        self,
        game: AtariGame,
        preset: str,
        protocol: AtariProtocol,
        *,
        seed: int,
        image_size: int,
        frame_stack: int,
    ) -> None:
        self._ale = _load_game(game, protocol, seed)
        self._protocol = protocol
        self._noop_rng = np.random.default_rng(seed)
        ale = self._ale
        known = ale.getLegalActionSet() if protocol.full_action_set else ale.getMinimalActionSet()
        self._actions = [int(action.value) for action in known]
        self._fires = protocol.fire and _FIRE in self._actions
        self._fire_due = False  # a life was lost since the last step started
        self._lives = 0  # after the last step
        self._image_size = image_size
        height, width = self._ale.getScreenDims()
        # The last two screens, for the maximum that removes the consoles' flicker.
        self._screens: UInt8Array = np.zeros((2, height, width), np.uint8)
        self.spec = EnvSpec(
            name=f"atari:{game.name}",
            frame_shape=(1, image_size, image_size),
            frame_stack=frame_stack,
            actions=DiscreteActions(len(self._actions)),
            action_repeat=protocol.action_repeat,
            episode_steps=-(-protocol.frame_cap // protocol.action_repeat),
            protocol={
                "suite": "atari",
                "preset": preset,
                **asdict(protocol),
                "image_size": image_size,
                "frame_stack": frame_stack,
            },
            versions={"ale_py": version("ale-py"), "opencv": version("opencv-python-headless")},
        )

    def reset(self) -> RawStep:
        self._ale.reset_game()
        noops = int(self._noop_rng.integers(1, self._protocol.noops + 1)) if self._protocol.noops else 0
        for button in [_NOOP] * noops + self._fire(self._fires):
            self._ale.act(button)
            if self._ale.game_over(with_truncation=False):
                self._ale.reset_game()
        self._ale.getScreenGrayscale(self._screens[1])
        self._screens[0] = self._screens[1]
        self._lives, self._fire_due = self._ale.lives(), False
        return RawStep(frame=self._frame())

    def step(self, action: Action) -> RawStep:
        """The action for its repeat; after a lost life FIRE comes first, for as many frames.

        Not at the end of the step that lost the life: its image is what the loss led to. What FIRE earns
        and takes belongs to this step, and a game may be over before the action's turn.
        """
        buttons = self._fire(self._fire_due) + [self._actions[int(action)]] * self._protocol.action_repeat
        reward, frames = 0.0, 0
        terminated = truncated = False
        while frames < len(buttons) and not (terminated or truncated):
            reward += self._ale.act(buttons[frames])
            frames += 1
            # Every screen is kept, not only the last two of a full step: an episode may end on any.
            self._screens[0] = self._screens[1]
            self._ale.getScreenGrayscale(self._screens[1])
            terminated = self._ale.game_over(with_truncation=False)
            truncated = not terminated and self._ale.getEpisodeFrameNumber() >= self._protocol.frame_cap
        # Some games show no lives for a while before they are over: that end is the game's.
        before, self._lives = self._lives, self._ale.lives()
        lost_life = not terminated and 0 < self._lives < before
        self._fire_due = self._fires and lost_life
        return RawStep(
            frame=self._frame(),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            frames=frames,
            lost_life=lost_life and self._protocol.terminal_on_life_loss,
        )

    def state(self) -> Snapshot:
        return {
            "emulator": np.frombuffer(self._ale.cloneSystemState().serialize(), np.uint8),
            "noop_rng": cast(Snapshot, self._noop_rng.bit_generator.state),
            "screens": self._screens.copy(),
            "lives": self._lives,
            "fire_due": self._fire_due,
        }

    def set_state(self, state: Snapshot) -> None:
        from ale_py import ALEState

        saved = cast(dict[str, Any], state)
        # An emulator that has never run a frame keeps some state through a restore: without
        # this, Qbert and Tetris continue differently in a fresh process.
        self._ale.act(_NOOP)
        self._ale.restoreSystemState(ALEState(saved["emulator"].tobytes()))
        self._noop_rng.bit_generator.state = saved["noop_rng"]
        self._screens[:] = saved["screens"]
        # Snapshots of version 0.1 have neither.
        self._lives = saved.get("lives", self._ale.lives())
        self._fire_due = saved.get("fire_due", False)

    def close(self) -> None:
        """The emulator lives in this process' memory alone: there is nothing to give back."""

    def _fire(self, wanted: bool) -> list[int]:
        return [_FIRE] * self._protocol.action_repeat if wanted else []

    def _frame(self) -> UInt8Array:
        import cv2

        pooled = np.maximum(*self._screens)
        size = (self._image_size, self._image_size)
        # By area, as meant; in the code of SPR the flag lands in another argument, and it is bilinear there.
        return cast(UInt8Array, cv2.resize(pooled, size, interpolation=cv2.INTER_AREA)[None])


def _load_game(game: AtariGame, protocol: AtariProtocol, seed: int) -> Any:
    try:
        from ale_py import ALEInterface, LoggerMode, roms
    except ImportError:
        raise UserError("Atari needs one more package: pip install 'ale-py>=0.12,<0.13'.") from None
    ALEInterface.setLoggerMode(LoggerMode.Error)
    ale = ALEInterface()
    # ALE takes signed 32-bit seeds and reads -1 as "the clock".
    ale.setInt("random_seed", seed % 2**31)
    ale.setFloat("repeat_action_probability", protocol.sticky_actions)
    ale.loadROM(str(roms.get_rom_path(game.rom)))
    return ale
