"""The measured training step: a spec's own module, inputs, loss and optimizer, built for real and run phase by phase.

Everything is seeded, so two runs execute the same operators on the same numbers. An exception in the model's code becomes a
one-line error that names the model, the sizes and the phase.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from calc.errors import MeasurementError, NapkinError, SpecError
from calc.experiment import optimizers
from calc.experiment.checkpointing import built
from calc.experiment.inputs import inputs_at, mapped
from calc.experiment.precision import MasterWeights, autocast, cast, gradient_scaler
from calc.experiment.uncompiled import uncompiled
from calc.measure.collector import collector_off
from calc.options import MASTER, Options
from calc.platform.replaced import replaced
from calc.platform.torch_private import FakeTensor, TracingContext, foreign_functions, onednn_is_on, set_onednn
from calc.spec import Sizes, Spec
from calc.symbolic.assignments import TYPED, sizes_text

SEED = 0
_SPREAD = 2654435761  # 2³² over the golden ratio: multiples of it lie far apart modulo 2³²
PHASES = ("forward", "backward", "optimizer")

Around = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Training:
    """A module with all that its steps need. ``optimizer`` is ``None`` if a step is only a forward.

    ``masters`` are fp32 copies that the optimizer updates in place of the parameters; ``scaler`` scales the loss; ``scheduler`` sets the
    learning rate after each step.
    """

    spec: Spec
    sizes: Mapping[str, int]
    module: torch.nn.Module
    inputs: tuple[Any, ...]
    optimizer: torch.optim.Optimizer | None
    options: Options = field(default_factory=Options)
    device: str = "cpu"
    masters: MasterWeights | None = None
    scaler: torch.amp.GradScaler | None = None
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None

    @property
    def phases(self) -> tuple[str, ...]:
        """The names of a step's phases, in order."""
        return PHASES if self.optimizer is not None else PHASES[:1]

    def use(self) -> Any:
        """The result of a forward-only step: the loss without gradients or, in mode infer, the model's prediction."""
        with blame(self.spec, self.sizes, "the forward pass"), autocast(self.options.precision, self.device):
            if self.options.mode == "infer":
                with torch.inference_mode():
                    return (self.spec.predict or self.spec.loss)(self.module, *self.inputs)
            with torch.no_grad():
                return self.spec.loss(self.module, *self.inputs)

    def forward(self) -> Tensor:
        with blame(self.spec, self.sizes, "the forward pass"), autocast(self.options.precision, self.device):
            loss = self.spec.loss(self.module, *self.inputs)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise SpecError(f"spec {self.spec.name!r}: loss must return a tensor of one element, not {_describe(loss)}")
        if not loss.requires_grad:
            raise SpecError(f"spec {self.spec.name!r}: the loss depends on no parameter that requires a gradient")
        return loss / self.batches if self.batches > 1 else loss

    def backward(self, loss: Tensor) -> None:
        with blame(self.spec, self.sizes, "the backward pass"):
            scaled = self.scaler.scale(loss) if self.scaler is not None else loss
            scaled.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def update(self) -> None:
        assert self.optimizer is not None
        with blame(self.spec, self.sizes, "the optimizer step"):
            if self.masters is not None:
                self.masters.take_gradients()
            if self.scaler is not None:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()
            if self.scheduler is not None:
                self.scheduler.step()
            if self.masters is not None:
                self.masters.copy_back()
            if self.options.zero_grad == "zero":
                self.optimizer.zero_grad(set_to_none=False)

    def clear(self) -> None:
        assert self.optimizer is not None
        if self.options.zero_grad == "none":
            self.optimizer.zero_grad(set_to_none=True)

    @property
    def batches(self) -> int:
        """Micro-batches per optimizer step."""
        return int(self.options.accumulation)

    def step(self, around: Around = lambda phase: nullcontext(), returned: Callable[[Tensor], None] = lambda loss: None) -> None:
        """Runs one step, each phase inside ``around(phase)``; ``returned`` gets the loss of every forward that trains. The loss stays
        referenced to the end, as in a usual training loop."""
        for _ in range(self.batches if self.optimizer is not None else 1):
            with around("forward"):
                loss = self.forward() if self.optimizer is not None else self.use()
            if self.optimizer is None:
                return
            returned(loss)
            with around("backward"):
                self.backward(loss)
        with around("optimizer"):
            self.update()
        self.clear()


def seed_of(seed: int, draw: int) -> int:
    """The seed of one draw or step of a run: ``draw`` for seed 0. Seeds that differ by at most 1000 share none in 10⁶ draws. Below 2³², as
    torch's generator of the CPU ignores higher bits (``mt19937``, ``aten/src/ATen/core/MT19937RNGEngine.h``)."""
    return (seed * _SPREAD + draw) % 2**32


@contextmanager
def training(
    spec: Spec, sizes: Mapping[str, int], options: Options, device: str, by_default: bool = False, seed: int = SEED
) -> Iterator[Training]:
    """Context with a new training, built from ``seed``. Attention runs on the backend that the options name, and LSTMs run cell by cell
    unless ``by_default``.

    The cyclic garbage collector is off inside: it would free storages at arbitrary moments.
    """
    attention = sdpa_kernel(SDPBackend.MATH) if options.attention == "math" else nullcontext()
    recurrent = nullcontext() if by_default else without_onednn()
    # The model's prints go to stderr: stdout is for data.
    quiet, same_random = redirect_stdout(sys.stderr), torch.random.fork_rng(devices=_cuda_devices(device))
    with quiet, same_random, collector_off(), attention, recurrent, _no_fake_tensors(spec):
        torch.manual_seed(seed)
        yield _build(spec, sizes, options, device)


@contextmanager
def _no_fake_tensors(spec: Spec) -> Iterator[None]:
    """Context in which an operator on a trace's fake tensor raises ``MeasurementError``: kernels would access memory it lacks. Those on
    which torch.compile traces are its own."""
    original = vars(FakeTensor)["__torch_dispatch__"]

    def refuse(cls: Any, func: Any, *args: Any, **keywords: Any) -> Any:
        if TracingContext.try_get() is not None:  # torch.compile is tracing
            return original.__get__(None, cls)(func, *args, **keywords)
        raise MeasurementError(
            f"{spec.name}: {func} of the real run meets a tensor of the trace, which some object outside the module still refers to;"
            " run the check again, from the trace on disk, or keep that tensor as a buffer of the module"
        )

    with replaced(FakeTensor, __torch_dispatch__=classmethod(refuse)):
        yield


def _build(spec: Spec, sizes: Mapping[str, int], options: Options, device: str) -> Training:
    with blame(spec, sizes, "building the module"), uncompiled():
        module = built(spec, Sizes(**sizes), options.checkpointing)
    if not isinstance(module, torch.nn.Module):
        raise SpecError(f"spec {spec.name!r}: build must return a torch.nn.Module, not {_describe(module)}")
    with blame(spec, sizes, "making the inputs"):
        inputs = inputs_at(spec, Sizes(**sizes), options)
    with blame(spec, sizes, f"moving the module to {device}"):
        module = module.to(device).train(options.trains)
        module, inputs = cast(module, mapped(lambda x: x.to(device), inputs), options.precision)
    masters = MasterWeights(module, MASTER) if options.precision == MASTER and options.trains else None
    with blame(spec, sizes, "building the optimizer"):
        stepped = [*module.parameters()] if masters is None else masters.stepped
        optimizer = optimizers.build(options, spec, module, stepped) if options.trains else None
    return Training(spec, sizes, module, inputs, optimizer, options, device, masters, gradient_scaler(options.precision, device))


@contextmanager
def blame(spec: Spec, sizes: Mapping[str, int], doing: str) -> Iterator[None]:
    """Context that raises a one-line ``MeasurementError`` in place of any exception but ``NapkinError``s, which pass unchanged."""
    try:
        yield
    except NapkinError:
        raise
    except Exception as error:
        at = sizes_text(sizes, TYPED)
        advice = " (lower the sizes)" if _is_out_of_memory(error) else ""
        message = f"{type(error).__name__}{advice}: {_one_line(str(error), 300)}"
        raise MeasurementError(f"{_one_line(spec.name, 80)} at {at}: {doing} raised {message}") from error


def _is_out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _one_line(text: str, length: int) -> str:
    line = " ".join(text.split()) or "no message"
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__} of {', '.join(type(x).__name__ for x in value) or 'nothing'}"
    return type(value).__name__


def _cuda_devices(device: str) -> list[int]:
    return [torch.device(device).index or 0] if device.startswith("cuda") else []


# -- LSTMs ------------------------------------------------------------------------------------------------------------
# LSTMs on torch's own operators instead of oneDNN.
#
# On a CPU torch runs an LSTM by oneDNN: one operator that no counter sees into, with a workspace whose size depends on the machine. So it
# is replaced (``calc/graph/exchanges.py``), and the default step is measured as well.


@contextmanager
def without_onednn() -> Iterator[None]:
    """Context in which LSTM layers run cell by cell, without oneDNN; other operators still use oneDNN."""
    functions: Any = foreign_functions
    by_default = functions.lstm

    def lstm(*args: Any) -> Any:
        enabled = onednn_is_on()
        set_onednn(False)
        try:
            return by_default(*args)
        finally:
            set_onednn(enabled)

    with replaced(functions, lstm=lstm):
        yield
