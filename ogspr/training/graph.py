"""The one place that decides how tensor code runs: plainly, compiled, or as a CUDA graph; in which precision.
Dense layers are the exception: they leave autocast by themselves (`ogspr.nets`).

A graph is captured over tensors that stay where they are. Whatever changes between two replays (weights, a
learning rate, target networks, replay) is changed in place, so a graph never goes stale.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

import torch

from ogspr.agents.protocol import Procedure, Step
from ogspr.device import Device
from ogspr.envs.trust import current_folder_ignored
from ogspr.errors import UserError
from ogspr.training.options import Execution, Precision

T = TypeVar("T")
P = ParamSpec("P")

_REHEARSALS = 3  # plain runs before a capture
# One function serves networks and batches of several kinds, and each kind is compiled once.
_RECOMPILE_LIMIT = 64


def make_accelerator(execution: Execution, device: Device) -> PlainAccelerator:
    """The accelerator for one learner.

    Precision of float32 products and the choice of convolution kernels are settings of the process: learners
    that share one have the same execution.
    """
    check_execution(execution, device)
    if device.is_gpu:
        set_matrix_precision(execution.precision)
        # Let convolutions race during the first updates: the rule of thumb picks slower kernels. Who wins a
        # race differs from process to process.
        torch.backends.cudnn.benchmark = not execution.deterministic
        torch.backends.cudnn.deterministic = execution.deterministic
    kinds = {"eager": PlainAccelerator, "compiled": CompilingAccelerator, "graph": GraphAccelerator}
    return kinds[execution.mode](device.torch, execution)


def check_execution(execution: Execution, device: Device) -> None:
    """Says what a device cannot do."""
    if device.is_gpu:
        return
    if execution.mode == "graph":
        raise UserError("mode graph needs a CUDA device; use eager or compiled on a CPU.")
    if execution.precision == "tf32":
        raise UserError("precision tf32 needs a CUDA device; use fp32 or bf16 on a CPU.")


class PlainAccelerator:
    """Runs everything as it is written."""

    def __init__(self, device: torch.device, execution: Execution) -> None:
        self._device = device
        self._execution = execution

    def function(self, function: Callable[P, T]) -> Callable[P, T]:
        if self._execution.precision != "bf16":
            return self._prepared(function)
        prepared = self._prepared(function)

        @functools.wraps(function)
        def in_bf16(*args: P.args, **kwargs: P.kwargs) -> T:
            with torch.autocast(self._device.type, torch.bfloat16):
                return prepared(*args, **kwargs)

        return in_bf16

    def _prepared(self, function: Callable[P, T]) -> Callable[P, T]:
        return function

    def step(self, procedure: Procedure) -> Step:
        return PlainStep(procedure)

    def branches(self, branches: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        return {name: branch() for name, branch in branches.items()}


class CompilingAccelerator(PlainAccelerator):
    """Compiles functions; updates still go through Python."""

    def _prepared(self, function: Callable[P, T]) -> Callable[P, T]:
        torch._dynamo.config.recompile_limit = _RECOMPILE_LIMIT
        # Gradients as in plain autograd. Else torch computes all of them under the autocast around the
        # function, and rounds those of layers that leave it to bf16, too.
        torch._functorch.config.backward_pass_autocast = "off"
        options: dict[str, str | int | bool | Callable[..., Any]] = {}
        # Kernels that sum are else chosen by a race, too, and differ in their order of adding.
        if self._execution.deterministic and "deterministic" in torch._inductor.list_options():
            options["deterministic"] = True  # what older versions of torch do not know
        return torch.compile(function, fullgraph=True, dynamic=False, options=options)

    def step(self, procedure: Procedure) -> Step:
        return PlainStep(replace(procedure, run=_compiling(procedure.run)))


class GraphAccelerator(CompilingAccelerator):
    """Compiles functions and captures whole procedures as CUDA graphs, branches side by side in them."""

    def __init__(self, device: torch.device, execution: Execution) -> None:
        super().__init__(device, execution)
        # Parameters used in two branches are meant to get gradients from two streams; autograd joins them.
        if hasattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch"):  # newer torch warns
            torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        self._side_streams: dict[str, torch.cuda.Stream] = {}

    def step(self, procedure: Procedure) -> Step:
        return CapturedStep(replace(procedure, run=_compiling(procedure.run)))

    def branches(self, branches: Mapping[str, Callable[[], T]]) -> dict[str, T]:
        """The first branch on the current stream, each other one on its own."""
        current = torch.cuda.current_stream(self._device)
        results: dict[str, T] = {}
        side = list(branches.items())[1:]
        for name, branch in side:
            stream = self._side_stream(name)
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                results[name] = branch()
        first, run = next(iter(branches.items()))
        results[first] = run()
        for name, _ in side:
            current.wait_stream(self._side_stream(name))
        return results

    def _side_stream(self, name: str) -> torch.cuda.Stream:
        if name not in self._side_streams:
            self._side_streams[name] = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        return self._side_streams[name]


class PlainStep:
    """Runs a procedure as it is."""

    def __init__(self, procedure: Procedure) -> None:
        self._procedure = procedure
        self._rehearsed = False

    def rehearse(self) -> None:
        """Compiles what is compiled; interrupted, nothing has changed."""
        if self._rehearsed:
            return
        with _undone(self._procedure):
            self._procedure.run()
        self._rehearsed = True

    def get_ready(self) -> None:
        self.rehearse()

    def __call__(self) -> None:
        self._procedure.run()


class CapturedStep:
    """Captures a procedure at its first call and replays it from there on.

    Rehearsals before the capture are undone, so that every call that counts is a replay: it makes no
    difference to the results when, or in which process, the capture happened.
    """

    def __init__(self, procedure: Procedure) -> None:
        self._procedure = procedure
        self._rehearsed = False
        self._graph: torch.cuda.CUDAGraph | None = None

    def rehearse(self) -> None:
        """Compiles kernels and lets libraries allocate their workspaces; interrupted, nothing has changed."""
        if self._rehearsed:
            return
        with _undone(self._procedure):
            for _ in range(_REHEARSALS):
                self._procedure.run()
        self._rehearsed = True

    def get_ready(self) -> None:
        self._ready_graph()

    def __call__(self) -> None:
        self._ready_graph().replay()

    def _ready_graph(self) -> torch.cuda.CUDAGraph:
        self.rehearse()
        if self._graph is None:
            self._graph = self._captured()
        return self._graph

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        if self._procedure.generator is not None:
            graph.register_generator_state(self._procedure.generator)
        stream = torch.cuda.current_stream()
        with (
            _workspaces_of_its_own(),
            torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
        ):
            self._procedure.run()
        return graph


def _compiling(run: Callable[[], None]) -> Callable[[], None]:
    """The same; a compiler that fails is told of in a line, and none runs code of the current folder."""
    begun = False

    def run_compiled() -> None:
        nonlocal begun
        try:
            # Only the first call starts helper processes; the user's own programs run as usual after it.
            with contextlib.nullcontext() if begun else current_folder_ignored():
                begun = True
                run()
        except RuntimeError as error:
            if not isinstance(error, torch._dynamo.exc.TorchDynamoException):
                raise
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise UserError(
                f"torch cannot compile here: {reason}. Repair that, or go without: --compute.mode eager."
            ) from error

    return run_compiled


@contextlib.contextmanager
def _workspaces_of_its_own() -> Iterator[None]:
    """A graph captured inside takes the memory in which matrix products add up from its own pool.

    Torch has one such workspace for each stream, and hands out 32 streams in turns: two graphs, captured one
    after the other on the same stream, would else write to the same place when they run side by side. Torch's
    own graphs (`torch._inductor.cudagraph_trees`) are captured like this, too.
    """
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


@contextlib.contextmanager
def _undone(procedure: Procedure) -> Iterator[None]:
    """Puts back what calls of the procedure inside have changed."""
    changed = procedure.changes()
    before = [tensor.detach().clone() for tensor in changed]
    numbers = procedure.generator.get_state() if procedure.generator is not None else None
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(changed, before, strict=True):
                tensor.copy_(value)
        if procedure.generator is not None and numbers is not None:
            procedure.generator.set_state(numbers)


def set_matrix_precision(precision: Precision) -> None:
    """Process-wide: torch knows no other kind. Convolutions would use TF32 if they were not told."""
    allowed = precision != "fp32"
    if not allowed:  # who asked for fp32 need not hear that TF32 would be faster
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", category=UserWarning)
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
