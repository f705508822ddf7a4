"""OG-SPR: acts, and learns from windows of replay (Algorithm 1)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ogspr.agents.acting import Actor
from ogspr.agents.actions import action_kind
from ogspr.agents.failures import FailedUpdate, FailureWatch, any_not_finite
from ogspr.agents.ogspr import losses
from ogspr.agents.ogspr.config import POLICY, VALUE, OGSPRConfig
from ogspr.agents.ogspr.networks import ValueNetwork, frozen_view, make_policy, parameter_count
from ogspr.agents.ogspr.noise import NoiseSizes, UpdateNoise, arrange_noise
from ogspr.agents.ogspr.step import Computed, Drawn, Gradients, Judgement
from ogspr.agents.ogspr.tasks import Evidence
from ogspr.agents.optimisation import ClippedAdamW, copy_state
from ogspr.agents.protocol import Accelerator, State, WindowSource
from ogspr.agents.tally import Tally
from ogspr.ops.representation import dead_share, effective_rank
from ogspr.ops.returns import n_step_return
from ogspr.types import Action, EnvSpec, UInt8Array, Window


class OGSPRAgent:
    """One learner of one variant.

    Args:
        config: The variant.
        spec: The environment it is made for.
        seed: Decides the initial weights and everything that is left to chance later.
        device: Where it computes.
        accelerator: How its tensor code is run.
    """

    def __init__(
        self, config: OGSPRConfig, spec: EnvSpec, *, seed: int, device: torch.device, accelerator: Accelerator
    ) -> None:
        self.config = config
        self.updates = 0
        self._accelerator = accelerator
        self._device = device
        self._actions = action_kind(
            spec.actions,
            temperature=config.gumbel_temperature,
            discrete_noise_scale=config.discrete_noise_scale,
        )
        self._action_spec = spec.actions
        self._build_networks(spec, seed)
        weights = {VALUE: 1.0} | {task.name: task.weight for task in config.tasks} | {POLICY: 1.0}
        self._weights = {name: torch.tensor(weight, device=device) for name, weight in weights.items()}
        self._horizon = config.sequence_horizon
        self._build_optimisers()
        self._seed_generators(seed)
        self._build_records()
        self._build_functions()
        self._step: Any = None
        self._replay: WindowSource | None = None

    # --- what the loop asks for -----------------------------------------------------------------

    @property
    def parameter_count(self) -> int:
        """Of the networks that learn."""
        return parameter_count(self.value_network, self.policy)

    def act(self, observation: UInt8Array, *, agent_steps: int, explore: bool) -> Action:
        """An action for one observation (C, H, W), or one for each of (N, C, H, W).

        With `explore`, noisy, and uniformly random during the first steps.
        """
        batch = observation if observation.ndim == 4 else observation[None]
        if explore and agent_steps < self.config.random_steps:
            actions = np.stack([self._action_spec.sample(self._act_rng) for _ in batch])
        else:
            actor = self._explorer if explore else self._evaluator
            actions = self._actions.to_environment(actor(batch, self._act_rng))
        return actions if observation.ndim == 4 else actions[0]

    def action_vector(self, action: Action) -> npt.NDArray[np.float32]:
        return self._actions.to_vector(action)

    def updates_due(self, agent_steps: int) -> int:
        """Updates that follow agent step number `agent_steps`, the first being 1."""
        return self.config.updates_per_step if agent_steps > self.config.random_steps else 0

    def update(self, replay: WindowSource) -> None:
        """One update of all networks from `replay`, which is the same one at every call."""
        if self._replay is None:
            self._replay = replay
            self._step = self._accelerator.step(partial(self._learn, replay), self._generator)
        elif self._replay is not replay:
            raise ValueError("an agent learns from one replay; make another agent for another replay")
        for horizon in {self.config.n_step, self._horizon} - {0}:
            if not replay.valid_starts(horizon):
                raise RuntimeError(f"no window of {horizon} steps is stored; add more steps before updating")
        if self.updates % self.config.target_period == 0:
            self._sync_targets(replay)
        self._step()
        self.updates += 1

    def metrics(self) -> dict[str, float]:
        """Means since the last call, and the health of the representations now. Waits for the device."""
        health = {
            f"{name}_{what}": float(measure(features))
            for name, features in self._features.items()
            for what, measure in (("effective_rank", effective_rank), ("dead_share", dead_share))
        }
        means = self._tally.flush()
        means["combined_loss"] = sum(
            float(weight) * means[f"{name}_loss"] for name, weight in self._weights.items() if name != POLICY
        )
        return means | health | {"failed_updates": float(self._failures.total)}

    def set_learning_rate(self, rate: float) -> None:
        """Of both optimisers, from the next update on."""
        for optimiser in (self._value_optimiser, self._policy_optimiser):
            optimiser.learning_rate.fill_(rate)

    @property
    def failures_in_a_row(self) -> int:
        """Updates that were left out at the end because a number was not finite; an update late on a GPU."""
        return self._failures.in_a_row

    @property
    def failed_updates(self) -> int:
        """All updates that were left out, as far as the host has heard."""
        return self._failures.total

    def forget_failures(self) -> None:
        """The row of failures is over."""
        self._failures.forget_row()

    def last_failure(self) -> FailedUpdate:
        """Waits for the device."""
        return self._failures.report()

    # --- one update -----------------------------------------------------------------------------

    def _learn(self, replay: WindowSource) -> None:
        """Everything between two target copies: reads and writes fixed tensors only."""
        self._finish(replay, self._backward(self._forward(self._sample(replay))))

    def phases(self, replay: WindowSource) -> dict[str, Callable[[], None]]:
        """An update cut off after each of its phases, for measuring; only the last one learns."""

        def sample() -> None:
            self._sample(replay)
            replay.finish_drawing()

        def forward() -> None:
            self._forward(self._sample(replay))
            replay.finish_drawing()

        def backward() -> None:
            self._backward(self._forward(self._sample(replay)))
            replay.finish_drawing()

        procedures: dict[str, Callable[[], None]] = {
            "sample": sample,
            "forward": forward,
            "backward": backward,
            "optimise": partial(self._learn, replay),
        }
        return {
            name: self._accelerator.step(procedure, self._generator) for name, procedure in procedures.items()
        }

    def _sample(self, replay: WindowSource) -> Drawn:
        noise = self._draw_noise()
        wanted = [(self.config.n_step, noise.value_places), (self._horizon, noise.sequence_places)]
        value, sequence = replay.draw(wanted)
        return Drawn(value, sequence, noise)

    def _forward(self, drawn: Drawn) -> Computed:
        value, sequence, noise = drawn
        found = self._latents(value, sequence, noise)
        h, sequence_h = found["online"]
        h_later, sequence_targets = found["target"]
        seen = Evidence(
            z=self._represent(self.value_network.core.state_action, h, value.actions[:, 0]),
            next_frame=found["next_frame"],
            pixel_range=self.config.pixel_range,
            short_return=found["short_return"],
            sequence_h=sequence_h,
            sequence_actions=sequence.actions,
            sequence_targets=sequence_targets,
            sequence_alive=sequence.alive,
        )
        terms, judged = self._losses(h.detach(), h_later, value, seen, noise)
        return Computed(drawn, seen, terms, judged, h.detach())

    def _backward(self, computed: Computed) -> tuple[Computed, Gradients]:
        return computed, self._gradients(computed.terms)

    def _finish(self, replay: WindowSource, results: tuple[Computed, Gradients]) -> None:
        """Optimisers, records and priorities; none of them where a number is not finite."""
        computed, gradients = results
        judged, starts = computed.judged, computed.drawn.value.starts
        numbers = self._numbers(computed.terms, gradients)
        skip = self._any_not_finite(tuple(numbers.values()))
        self._accelerator.branches(
            {
                "optimise": partial(self._optimise, gradients, skip),
                "record": partial(self._record, computed, numbers | judged.numbers, skip),
                "prioritise": partial(replay.set_priorities, starts, judged.priorities, skip),
            }
        )

    def _draw_noise(self) -> UpdateNoise:
        config = self.config
        sizes = NoiseSizes(config.batch_size, self._horizon, self._actions.size)
        uniforms, normals = sizes.draw(self._generator)
        noise: UpdateNoise = self._arrange(uniforms, normals, sizes, config.shift_pad)
        return noise

    def _latents(self, value: Window, sequence: Window, noise: UpdateNoise) -> dict[str, Any]:
        """Latent states of both networks, the frame and the return to predict: none needs another."""
        windows = (value, sequence, noise, (self.config.shift_pad, self.config.pixel_range))

        def target() -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                latents: tuple[Tensor, Tensor] = self._target_latents(self.target_core, *windows)
            return latents

        return self._accelerator.branches(
            {
                "online": partial(self._online_latents, self.value_network.core, *windows),
                "target": target,
                "next_frame": partial(self._next_frame, value, noise, self.config.shift_pad),
                "short_return": partial(
                    self._n_step_return, value.rewards, value.alive, self.config.discount
                ),
            }
        )

    def _losses(
        self, h: Tensor, h_later: Tensor, value: Window, seen: Evidence, noise: UpdateNoise
    ) -> tuple[dict[str, Tensor], Judgement]:
        """Every loss by name, and what the value loss found out. `h` is detached."""
        core = self.value_network.core
        branches: dict[str, Callable[[], Any]] = {
            task.name: partial(
                self._task_losses[task.name], self.value_network.heads[task.name], core.state_action, seen
            )
            for task in self.config.tasks
        }
        branches[VALUE] = partial(self._value_loss, h_later, value, seen, noise)
        branches[POLICY] = partial(
            self._actor_loss,
            self.policy,
            self._frozen_core,
            self._actions,
            h,
            noise.policy_gumbel,
            self.config.pre_activation_weight,
        )
        terms = self._accelerator.branches(branches)
        terms[VALUE], judged = terms[VALUE]
        return terms, judged

    def _value_loss(
        self, h_later: Tensor, value: Window, seen: Evidence, noise: UpdateNoise
    ) -> tuple[Tensor, Judgement]:
        config = self.config
        with torch.no_grad():
            y = self._bootstrapped_target(
                self.target_core,
                self.target_policy,
                self._actions,
                h_later,
                seen.short_return,
                value.alive,
                noise,
                config.target_noise,
                config.target_noise_limit,
                config.discount,
                (self._scale, self._target_scale),
            )
        loss, priorities, numbers = self._long_term_loss(
            self.value_network.core, seen.z, y, config.priority_exponent, config.minimum_priority
        )
        return loss, Judgement(priorities, numbers)

    def _gradients(self, terms: dict[str, Tensor]) -> Gradients:
        """Of the weighted sum of losses by the value network, and of the actor's by the policy."""
        value_parameters = self._value_optimiser.parameters
        # The actor's loss shares no parameters with the others (it sees detached latents and a frozen
        # core), so one pass gives both. A parameter without a gradient would be an error here.
        gradients = torch.autograd.grad(
            [terms[name] for name in self._weights],
            (*value_parameters, *self._policy_optimiser.parameters),
            list(self._weights.values()),
        )
        value = self._value_optimiser.gather(gradients[: len(value_parameters)])
        policy = self._policy_optimiser.gather(gradients[len(value_parameters) :])
        norm = torch.linalg.vector_norm
        return Gradients(
            value, policy, [norm(vector) for vector in value], [norm(vector) for vector in policy]
        )

    def _numbers(self, terms: dict[str, Tensor], gradients: Gradients) -> dict[str, Tensor]:
        """Every loss and gradient norm by name."""
        return {f"{name}_loss": term.detach() for name, term in terms.items()} | {
            "value_gradient_norm": torch.linalg.vector_norm(torch.stack(gradients.value_norms)),
            "policy_gradient_norm": torch.linalg.vector_norm(torch.stack(gradients.policy_norms)),
        }

    def _optimise(self, gradients: Gradients, skip: Tensor) -> None:
        self._value_optimiser.step(gradients.value, gradients.value_norms, skip)
        self._policy_optimiser.step(gradients.policy, gradients.policy_norms, skip)

    def _record(self, computed: Computed, numbers: dict[str, Tensor], skip: Tensor) -> None:
        value, sequence, _ = computed.drawn
        self._failures.observe(skip, numbers, {"value": value.starts, "sequence": sequence.starts})
        self._tally.add(numbers, skip)
        for name, features in (("h", computed.h), ("z", computed.seen.z.detach())):
            kept = self._features[name]
            kept.copy_(torch.where(skip > 0, kept, features))

    def _sync_targets(self, replay: WindowSource) -> None:
        """The target networks become copies, in place."""
        with torch.no_grad():
            torch._foreach_copy_(
                list(self.target_core.parameters()), list(self.value_network.core.parameters())
            )
            torch._foreach_copy_(list(self.target_policy.parameters()), list(self.policy.parameters()))
            if self.config.reward_scaling == "mean-absolute":
                self._target_scale.copy_(self._scale)
                mean = replay.mean_absolute_reward()
                self._scale.copy_(torch.where(mean > 0, mean, torch.ones_like(mean)))

    # --- state ----------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything that decides what comes next, but for replay: tensors and JSON values."""
        return {
            "updates": self.updates,
            "act_rng": self._act_rng.bit_generator.state,
            "generator": self._generator.get_state(),
            "tensors": {
                f"{part}.{name}": tensor
                for part, tensors in self._tensors().items()
                for name, tensor in tensors.items()
            },
        }

    def load_state_dict(self, state: State) -> None:
        """In place: what was captured before goes on with the loaded numbers. ValueError: nothing changed."""
        ours = self.state_dict()
        if state.keys() != ours.keys():
            raise ValueError(f"the saved state does not fit: it has {sorted(state)}, expected {sorted(ours)}")
        act_rng, generator = np.random.default_rng(), torch.Generator(self._device)
        try:  # on stand-ins: a state that cannot be used is found out before anything is changed
            act_rng.bit_generator.state = state["act_rng"]
            generator.set_state(state["generator"].cpu())
            updates = int(state["updates"])
        except (AttributeError, KeyError, RuntimeError, TypeError) as error:
            raise ValueError(f"the saved state does not fit: {error}") from None
        copy_state(ours["tensors"], state["tensors"])
        self.updates = updates
        self._act_rng = act_rng
        self._generator.set_state(generator.get_state())
        self._failures.tell_host()

    def _tensors(self) -> dict[str, dict[str, Tensor]]:
        return {
            "value_network": self.value_network.state_dict(),
            "policy": self.policy.state_dict(),
            "target_core": self.target_core.state_dict(),
            "target_policy": self.target_policy.state_dict(),
            "value_optimiser": self._value_optimiser.state_dict(),
            "policy_optimiser": self._policy_optimiser.state_dict(),
            "scales": {"online": self._scale, "target": self._target_scale},
            "features": self._features,
            "tally": self._tally.state_dict(),
            "failures": self._failures.state_dict(),
        }

    # --- construction ---------------------------------------------------------------------------

    def _build_networks(self, spec: EnvSpec, seed: int) -> None:
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers are not touched
            torch.manual_seed(seed)
            value_network = ValueNetwork(self.config, spec, self._actions.size)
            policy = make_policy(self.config.sizes, self._actions.size)
        self.value_network = value_network.to(self._device)
        self.policy = policy.to(self._device)
        self.target_core = copy.deepcopy(self.value_network.core).requires_grad_(False)
        self.target_policy = copy.deepcopy(self.policy).requires_grad_(False)
        self._scale = torch.ones((), device=self._device)
        self._target_scale = torch.ones((), device=self._device)

    def _build_optimisers(self) -> None:
        config = self.config
        value_groups = [dict(self.value_network.named_parameters())]
        if config.clip_scope == "module":
            names = {parameter: name for name, parameter in value_groups[0].items()}
            value_groups = [
                {names[parameter]: parameter for parameter in module.parameters()}
                for module in self.value_network.parts()
            ]
        rates: dict[str, Any] = {"learning_rate": config.learning_rate, "weight_decay": config.weight_decay}
        rates["accelerate"] = self._accelerator.function
        self._value_optimiser = ClippedAdamW(value_groups, **rates, clip_norm=config.clip_norm)
        self._policy_optimiser = ClippedAdamW([dict(self.policy.named_parameters())], **rates, clip_norm=None)
        self._frozen_core = frozen_view(self.value_network.core)  # now that its numbers stay where they are

    def _seed_generators(self, seed: int) -> None:
        """One generator a role, so that acting more often does not change what is learned."""
        update_seed, act_seed = np.random.SeedSequence(seed).spawn(2)
        self._generator = torch.Generator(self._device)
        self._generator.manual_seed(int(update_seed.generate_state(1, np.uint64)[0] >> 1))
        self._act_rng = np.random.default_rng(act_seed)

    def _build_records(self) -> None:
        losses_and_norms = [f"{name}_loss" for name in self._weights]
        losses_and_norms += ["value_gradient_norm", "policy_gradient_norm"]
        self._tally = Tally([*losses_and_norms, *losses.JUDGED], self._device)
        batches = {
            "value": self.config.batch_size,
            "sequence": self.config.batch_size if self._horizon else 0,
        }
        self._failures = FailureWatch(losses_and_norms, batches, self._device)
        sizes = {"h": self.config.sizes.latent, "z": self.config.sizes.representation}
        self._features = {
            name: torch.zeros(self.config.batch_size, size, device=self._device)
            for name, size in sizes.items()
        }

    def _build_functions(self) -> None:
        fast = self._accelerator.function
        self._arrange = fast(arrange_noise)
        self._next_frame = fast(losses.next_frame)
        self._n_step_return = fast(n_step_return)
        self._online_latents = fast(losses.online_latents)
        self._target_latents = fast(losses.target_latents)
        self._represent = fast(losses.represent)
        self._bootstrapped_target = fast(losses.bootstrapped_target)
        self._long_term_loss = fast(losses.long_term_loss)
        self._actor_loss = fast(losses.actor_loss)
        self._any_not_finite = fast(any_not_finite)
        self._task_losses = {task.name: fast(task.loss) for task in self.config.tasks}
        self._explorer = self._actor(
            losses.noisy_action, self.config.pixel_range, self.config.exploration_noise, noisy=True
        )
        self._evaluator = self._actor(losses.plain_action, self.config.pixel_range, noisy=False)

    def _actor(self, respond: Callable[..., Tensor], *settings: Any, noisy: bool) -> Actor:
        fast = self._accelerator.function(respond)
        bound = partial(fast, self._frozen_core, self.policy, self._actions, *settings)
        return Actor(bound, self._actions.size, self._accelerator, self._device, noisy=noisy)
