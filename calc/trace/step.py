"""Runs the real training step on fake tensors and returns its record."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from calc.basis import Basis
from calc.errors import DataDependentError, NapkinError, SpecError, TraceError
from calc.graph import Call, Record, Storage, Tensor
from calc.options import Options
from calc.spec import Sizes, Spec
from calc.trace import disguise, optimizers, recurrent
from calc.trace.arithmetic import symbolic_numbers
from calc.trace.keeping import Keeping
from calc.trace.lines import doing, raising_line
from calc.trace.recorder import Recorder
from calc.trace.remember import remembered
from calc.trace.standins import standing_in
from calc.trace.symbols import SizeEnv


@dataclass(frozen=True, slots=True)
class Traced:
    """A record, and what it took for granted: the questions asked about sizes (symbolic runs) and about values."""

    record: Record
    env: SizeEnv | None
    answers: Mapping[str, str]


def record_step(
    spec: Spec,
    basis: Basis,
    hint_of: Mapping[str, int],
    fixed: Mapping[str, int],
    options: Options,
    turns: Collection[str] = (),
    met: Mapping[str, Sequence[int]] | None = None,
) -> Traced:
    """Record two training steps of ``spec``.

    ``hint_of`` gives the hint of each symbolic basis symbol, ``fixed`` the basis symbols that are plain integers in this
    run (loop counts; all of them for a concrete run). Those of ``turns`` are sizes beside: they stay symbols, which are read as these
    numbers. ``met`` has the sizes that data decide, one each time, where they are not the same every time. The second step is the
    one that counts.
    """
    known = {**hint_of, **{name: fixed[name] for name in turns}}
    free = {n: known[n] for n in basis.symbols if n in turns or n not in fixed}
    env = SizeEnv(free, turns) if free else None
    size, hint = (env.size, env.hint) if env is not None else (_plain, _plain)
    values: dict[str, Any] = {**fixed, **(env.symbols if env is not None else {})}
    sizes = Sizes(**{name: eval(compile(text, "<dimension>", "eval"), {"__builtins__": {}}, values) for name, text in basis.define.items()})
    decided = {dim.decided_at: getattr(sizes, name) for name, dim in spec.dimensions.items() if dim.decided_at}
    recorder = Recorder(size, hint, decided, met)
    # What the model prints is talk, and stdout is for data.
    with contextlib.redirect_stdout(sys.stderr), doing(recorder.where), _refusing(spec, env), _fake(env), recorder:
        record = _Run(spec, sizes, recorder, options).record(fixed)
    return Traced(record, env, recorder.shadows.answers)


def _plain(value: Any) -> Any:
    return value


@contextlib.contextmanager
def _fake(env: SizeEnv | None) -> Iterator[None]:
    mode = FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
    # Torch's cache of fake results pays off for plain sizes; keys made of symbols cost more than they save.
    mode.cache_enabled = env is None
    with mode, disguise.unrecognised(), remembered(), symbolic_numbers(), _quiet(), _no_collection():
        yield


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: it would end the life of tensors in reference cycles at moments that depend on our own work."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Torch logs every operator that raises under fake tensors; some are tried on purpose, the others become our errors."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Run:
    """One run: the module, its optimizer and its inputs, driven through two steps under the recorder."""

    def __init__(self, spec: Spec, sizes: Sizes, recorder: Recorder, options: Options) -> None:
        self.recorder = recorder
        self.options = options
        self.spec = spec
        with disguise.building(), recurrent.sized():
            self.module = _module(spec, sizes)
            self.module.train(options.trains)
            self.optimizer = optimizers.build(options.optimizer, spec, self.module) if options.trains else None
            self.inputs = _inputs(spec, sizes)
        self.gradients: dict[str, Tensor] = {}
        self.gradient_storages: set[int] = set()
        self.activation_storages: set[int] = set()
        self.kept = Keeping(recorder)
        self.windows: list[tuple[int, int]] = []

    def record(self, fixed: Mapping[str, int]) -> Record:
        recorder = self.recorder
        parameters = tuple((n, recorder.tensor(p, n)) for n, p in self.module.named_parameters())
        buffers = tuple((n, recorder.tensor(b, n)) for n, b in self.module.named_buffers())
        inputs = tuple(recorder.tensor(t, "(input)") for t in self.inputs if isinstance(t, torch.Tensor))
        recorder.owner.update({t.storage: n for n, t in reversed(parameters)})
        persistent = tuple(sorted({recorder.storage(t) for t in self.module.state_dict().values()}))
        self._state()  # some optimizers make their state when they are built: it is alive before the first step
        with (
            recorder.path.watch(self.module),
            disguise.calls_noted(self._noted, recorder.size),
            standing_in(recorder.called, recorder.path.within, recorder.choices.picking),
            _attention(self.options),
        ):
            for number in (1, 2):
                if self.optimizer is not None:
                    self._step(number, self.optimizer)
                else:
                    self._forward(number)
        state = self._state()
        roles = self._roles(parameters, buffers, inputs, state)
        return Record(
            sizes=dict(fixed),
            storages=tuple(
                Storage(i, nbytes, roles.get(i, "temporary"), recorder.owner.get(i) or recorder.maker[i])
                for i, nbytes in recorder.nbytes.items()
            ),
            ops=tuple(recorder.ops),
            events=tuple(recorder.events),
            saved=self.kept.found(),
            calls=tuple(recorder.calls),
            parameters=parameters,
            gradients=tuple(self.gradients.items()),
            buffers=buffers,
            state=state,
            persistent=persistent,
            windows=tuple(self.windows),
        )

    def _state(self) -> tuple[tuple[str, str, Tensor], ...]:
        """(parameter, key, tensor) of everything the optimizer keeps now."""
        if self.optimizer is None:
            return ()
        return tuple(
            (name, key, self.recorder.tensor(value, name))
            for name, p in self.module.named_parameters()
            for key, value in self.optimizer.state.get(p, {}).items()
            if isinstance(value, torch.Tensor)
        )

    def _forward(self, number: int) -> None:
        """A step that is a forward alone. Its result lives to the end of the window, as the loss of a training step does."""
        recorder = self.recorder
        recorder.step, recorder.phase = number, "forward"
        start = len(recorder.events)
        with _no_gradients(self.options):
            result = _result(self.spec, self.module, self.inputs, self.options)
        self.windows.append((start, len(recorder.events)))
        del result
        recorder.phase = ""

    def _step(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        recorder = self.recorder
        recorder.step = number
        start = len(recorder.events)
        recorder.phase = "forward"
        before = set(recorder.alive)
        # Hooks may change lifetimes by a hair, so they watch the first step and leave the one that counts alone.
        first = number == 1
        with self.kept.watching() if first else contextlib.nullcontext():
            loss = _loss(self.spec, self.module, self.inputs)
        if first:
            self.kept.returned(loss)
        self.activation_storages |= recorder.alive - before
        recorder.phase = "backward"
        if not loss.requires_grad:
            raise SpecError(f"{self.spec.name}: the loss depends on no parameter that requires a gradient; {_NOT_TRAINED}")
        loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        self._note_gradients()
        recorder.phase = "optimizer"
        optimizer.step()
        recorder.phase = "zero_grad"
        optimizer.zero_grad(set_to_none=True)
        self.windows.append((start, len(recorder.events)))
        del loss
        recorder.phase = ""
        if first:
            self.kept.dropped()

    def _note_gradients(self) -> None:
        recorder = self.recorder
        for name, p in self.module.named_parameters():
            if p.grad is not None:
                self.gradients[name] = recorder.tensor(p.grad, name)
                recorder.owner[self.gradients[name].storage] = name
        self.gradient_storages |= {t.storage for t in self.gradients.values()}

    @contextlib.contextmanager
    def _noted(self, call: Call) -> Iterator[None]:
        recorder = self.recorder
        recorder.calls.append(call)
        recorder.call = len(recorder.calls) - 1
        try:
            yield
        finally:
            recorder.call = None

    def _roles(self, parameters: Any, buffers: Any, inputs: Any, state: Any) -> dict[int, str]:
        """Role of each storage; where a storage has several, the first of this order."""
        roles: dict[int, str] = dict.fromkeys(self.activation_storages, "activation")
        roles.update(dict.fromkeys(self.gradient_storages, "gradient"))
        roles.update({t.storage: "optimizer state" for _, _, t in state})
        roles.update({t.storage: "input" for t in inputs})
        roles.update({t.storage: "buffer" for _, t in buffers})
        roles.update({t.storage: "parameter" for _, t in parameters})
        return roles


_NOT_TRAINED = "to use the model without training it, derive it in mode eval or infer"


def _module(spec: Spec, sizes: Sizes) -> torch.nn.Module:
    module = spec.build(sizes)
    if not isinstance(module, torch.nn.Module):
        raise SpecError(f"{spec.name}: build must return a torch.nn.Module, not {type(module).__name__}")
    return module


def _inputs(spec: Spec, sizes: Sizes) -> tuple[Any, ...]:
    inputs = spec.inputs(sizes)
    if not isinstance(inputs, tuple) or not any(isinstance(t, torch.Tensor) for t in inputs):
        raise SpecError(f"{spec.name}: inputs must return a tuple with at least one tensor, not {type(inputs).__name__}")
    return inputs


def _loss(spec: Spec, module: torch.nn.Module, inputs: tuple[Any, ...]) -> torch.Tensor:
    loss = spec.loss(module, *inputs)
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
        what = f"a tensor of {loss.dim()} dimensions" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise SpecError(f"{spec.name}: loss must return a scalar tensor, not {what}")
    return loss


def _result(spec: Spec, module: torch.nn.Module, inputs: tuple[Any, ...], options: Options) -> Any:
    """What a step without gradients computes: the prediction when the model is used, else the loss."""
    if options.mode == "infer" and spec.predict is not None:
        return spec.predict(module, *inputs)
    return _loss(spec, module, inputs)


def _no_gradients(options: Options) -> Any:
    return torch.inference_mode() if options.mode == "infer" else torch.no_grad()


def _attention(options: Options) -> Any:
    return sdpa_kernel(SDPBackend.MATH) if options.attention == "math" else contextlib.nullcontext()


@contextlib.contextmanager
def _refusing(spec: Spec, env: SizeEnv | None) -> Iterator[None]:
    """Turns whatever the model raises into one line that says where."""
    try:
        yield
    except (Exception, SystemExit) as error:
        known = _napkin_error(error)
        if known is not None:
            raise known from None
        where = raising_line(error)
        if isinstance(error, DataDependentOutputException | DynamicOutputShapeException) or "data-dependent" in str(error).lower():
            raise DataDependentError(
                f"{spec.name} takes a size or a branch from the data in a tensor at {where}: no closed form follows; "
                "make it depend on sizes only"
            ) from None
        if "saved tensor hooks" in str(error):
            raise TraceError(
                f"{spec.name} calls torch.func.grad, vjp or a kin of theirs at {where}: torch gives no account of what autograd keeps"
                " there; take the gradient with torch.autograd.grad, or leave that part out"
            ) from None
        if os.environ.get("NAPKIN_DEBUG"):
            traceback.print_exc()
        first = " ".join(str(error).split())[:200] or "no message"
        said = env.named(first) if env is not None else first
        raise TraceError(f"{spec.name} raised {type(error).__name__} at {where}: {said}") from None


def _napkin_error(error: BaseException | None) -> NapkinError | None:
    while error is not None:
        if isinstance(error, NapkinError):
            return error
        error = error.__cause__ or error.__context__
    return None
