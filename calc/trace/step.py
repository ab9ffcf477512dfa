"""Runs the real training step on fake tensors and returns its trace."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from calc.errors import SpecError, SpecializationError
from calc.experiment import optimizers, precision
from calc.experiment.checkpointing import built
from calc.experiment.inputs import inputs_at
from calc.graph.step import LOSS, OPTIMIZER, TOP, Call, Guard, Op, StepTrace, Storage, Tensor
from calc.graph.unrolling import frees_in_order, unrolled_to
from calc.options import Options
from calc.spec import Sizes, Spec
from calc.trace.kernels import hide_tracing, on_cuda, recurrent
from calc.trace.kernels.operator_overrides import overriding_operators
from calc.trace.kernels.result_cache import Repeats
from calc.trace.random_draws import extreme, refused, same_operators
from calc.trace.real_tensors import replace_real_tensors
from calc.trace.recorder import Recorder, tensors_in
from calc.trace.saved_tensors import SavedTensors
from calc.trace.tracing import StepSizes, tracing
from calc.trace.values import scalar_reads


@dataclass(frozen=True, slots=True)
class TracedRun:
    """A trace, with its guards and assumptions.

    ``guards``           of a symbolic run; ``divided`` maps those that divide by a trip count, by their text, to the guard at that count.
    ``constant_reads``   line that reads a constant out of a tensor → its value, and why it has that value.
    ``value_reads``      line that reads a value which depends on symbols → these symbols.
    ``repeats``          cached results for a run with the same symbols.
    ``scalar_readers``   who reads numbers out of data and uses them in arithmetic only: the optimizer, or a line.
    ``mutates_tracked``  that of ``Graph``.
    ``number_reads``     line that uses the value of a size, or of a double computed from sizes → the symbols in it.
    ``exchanged``        kernels that torch would run differently, by their keys in ``calc.graph.exchanges``.
    ``rounded_shares``   those of ``SizeEnv``.
    ``unrolled``         whether an iteration of another trace is repeated in it: it is not traced itself.
    """

    trace: StepTrace
    guards: Sequence[Guard]
    divided: Mapping[str, Guard]
    constant_reads: Mapping[str, tuple[str, str]]
    value_reads: Mapping[str, frozenset[str]]
    repeats: Repeats
    scalar_readers: tuple[str, ...] = ()
    mutates_tracked: bool = True
    number_reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    exchanged: Collection[str] = ()
    rounded_shares: Sequence[SpecializationError] = ()
    unrolled: bool = False


@dataclass(frozen=True, slots=True)
class FirstForward:
    """The first forward of a step: its operators, and what was ``made``.

    ``made`` has the number of ``operators`` and of those of each name, of ``storages`` with their ``bytes``, of those still ``alive``
    (``bytes_alive``), of tensors ``saved`` for the backward or to be ``recomputed`` from, and of ``trained`` parameters.
    """

    made: Counter[str]
    ops: tuple[Op, ...]


def trace_step(spec: Spec, at: StepSizes, options: Options, mutates_tracked: bool = False, like: Repeats | None = None) -> TracedRun:
    """The trace of two training steps of ``spec``, of which the second is counted.

    ``mutates_tracked`` is that of other traces of the step: without it, views are made as torch makes them, which is faster; a step that
    mutates a tracked tensor after all is traced once more as soon as it does. ``like`` caches results of an earlier run. Raises
    ``DataDependentError`` for a step that runs other operators where Python or NumPy draw other numbers.
    """
    run, drew = _traced(spec, at, options, mutates_tracked, like, largest=False)
    if drew and not same_operators(run.trace, _traced(spec, at, options, mutates_tracked, like, largest=True)[0].trace):
        raise refused(spec.name)
    return run


def _traced(
    spec: Spec, at: StepSizes, options: Options, mutates_tracked: bool, like: Repeats | None, largest: bool
) -> tuple[TracedRun, bool]:
    """A trace in which Python and NumPy draw the least or the ``largest`` numbers, and whether its steps drew any."""
    with tracing(spec, at, mutates_tracked, like) as (recorder, sizes):
        run = _StepRun(spec, sizes, recorder, options)
        with run.reading(certifying=recorder.repeats.env is None), extreme(largest) as drew:
            try:
                trace = run.trace(at.fixed)
            except SpecError:
                if drew():  # everything that is trained may be skipped
                    raise refused(spec.name) from None
                raise
            drawn, readers = drew(), tuple(recorder.unbacked.readers)
    if recorder.mutates_tracked and not mutates_tracked:
        return _traced(spec, at, options, True, like, largest)
    repeats, env = recorder.repeats, recorder.repeats.env
    guards, divided = ((), {}) if env is None else (env.size_guards(), env.divided())
    constants = recorder.constants
    by_value = {} if env is None else env.number_reads
    exchanged = {*recorder.exchanged}
    shares = () if env is None else tuple(env.rounded_shares)
    constant_reads, value_reads, rewritten = constants.constant_reads, constants.value_reads, recorder.mutates_tracked
    traced = TracedRun(trace, guards, divided, constant_reads, value_reads, repeats, readers, rewritten, by_value, exchanged, shares)
    return traced, drawn


def first_forward(spec: Spec, at: StepSizes, options: Options, mutates_tracked: bool) -> FirstForward:
    """What the module and the first forward of a step do, a fraction of the work of a trace."""
    with tracing(spec, at, mutates_tracked, None) as (recorder, sizes):
        run = _StepRun(spec, sizes, recorder, options)
        with run.reading(certifying=True), extreme(False):
            return run.first_forward()


def unrolled_run(spec: Spec, run: TracedRun, at: StepSizes, options: Options) -> TracedRun | None:
    """``run`` with one more iteration of a loop, as ``trace_step`` would trace it ``at`` these sizes: only the module is built, to see that
    its parameters and buffers are those of the repeated iteration. None where it must be traced."""
    with tracing(spec, at, run.mutates_tracked, run.repeats) as (recorder, sizes):
        module = _module(spec, sizes, options, recorder)
        tensors = [(name, recorder.tensor(t, name).shape) for name, t in (*module.named_parameters(), *_dense_buffers(module))]
    trace = unrolled_to(run.trace, at.fixed, tensors)
    return None if trace is None else replace(run, trace=trace, unrolled=True)


def _module(spec: Spec, sizes: Sizes, options: Options, recorder: Recorder) -> torch.nn.Module:
    with hide_tracing.building(), recurrent.sized(), overriding_operators(recorder):
        return module_of(spec, sizes, options.checkpointing)


# The value of each number read out of data: certificates use another one than symbolic traces.
_READ = (0.7390851332151607, 1234.5)


class _StepRun:
    """One run: the module, its optimizer and its inputs, driven through two steps under the recorder."""

    def __init__(self, spec: Spec, sizes: Sizes, recorder: Recorder, options: Options) -> None:
        self.recorder = recorder
        self.options = options
        self.spec = spec
        with hide_tracing.building(), recurrent.sized(), self._overriding():
            module, inputs = module_of(spec, sizes, options.checkpointing), inputs_at(spec, sizes, options)
            replace_real_tensors(module)
            if options.kernels == "cuda":
                on_cuda.refuse_cudnn(module)
            self.module, self.inputs = precision.cast(module, inputs, options.precision)
            self.module.train(options.trains)
            self.masters = precision.MasterWeights(self.module, options.precision)
            self.optimizer = optimizers.build(options, spec, self.module, self.masters.stepped) if options.trains else None
        self.scaler = precision.gradient_scaler(options.precision)
        self.gradients: dict[str, Tensor] = {}
        self.gradient_storages: set[int] = set()
        self.activation_storages: set[int] = set()
        self.saved_tensors = SavedTensors(recorder)
        self.windows: list[tuple[int, int]] = []
        self.read = _READ[False]

    def reading(self, certifying: bool) -> contextlib.AbstractContextManager[None]:
        """Context in which the optimizer and the model may read numbers out of data, if they only use them in arithmetic."""
        self.read = _READ[certifying]
        if self.optimizer is None:
            return contextlib.nullcontext()
        return scalar_reads.numbers_only(self.optimizer, self.recorder.unbacked.reading, self.read, certifying)

    def _overriding(self) -> contextlib.AbstractContextManager[None]:
        return overriding_operators(self.recorder)

    def _model_reads(self) -> contextlib.AbstractContextManager[None]:
        unbacked = self.recorder.unbacked
        return scalar_reads.in_model(unbacked.reading, self.read, unbacked.comparing)

    def trace(self, fixed: Mapping[str, int]) -> StepTrace:
        recorder = self.recorder
        parameters = tuple((n, recorder.tensor(p, n)) for n, p in self.module.named_parameters())
        buffers = tuple((n, recorder.tensor(b, n)) for n, b in _dense_buffers(self.module))
        inputs = tuple(recorder.tensor(t, "(input)") for t in tensors_in(self.inputs))
        recorder.owner.update({t.storage: n for n, t in reversed(parameters)})
        masters = tuple((n, recorder.tensor(p, n)) for n, p in self.masters.named()) if self.masters.copied else ()
        recorder.owner.update({t.storage: n for n, t in masters})
        self._state()  # some optimizers create their state when they are built: it is allocated before the first step
        with self._running():
            for number in (1, 2):
                if self.optimizer is not None:
                    self._step(number, self.optimizer)
                else:
                    self._forward(number)
        state = self._state()
        buffers = (*buffers, *self._registered_since(buffers))
        roles = self._roles(parameters, buffers, inputs, state) | {t.storage: "master weight" for _, t in masters}
        return StepTrace(
            sizes=dict(fixed),
            storages=tuple(
                Storage(i, nbytes, roles.get(i, "temporary"), recorder.owner.get(i) or recorder.maker[i])
                for i, nbytes in recorder.nbytes.items()
            ),
            ops=tuple(recorder.ops),
            events=tuple(frees_in_order(recorder.events, self.windows)),
            saved=self.saved_tensors.saved(),
            calls=tuple(recorder.calls),
            parameters=parameters,
            gradients=tuple(self.gradients.items()),
            buffers=buffers,
            state=state,
            persistent=tuple(sorted({recorder.storage(t) for t in tensors_in(self.module.state_dict())})),
            windows=tuple(self.windows),
            masters=masters,
        )

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        recorder = self.recorder
        with (
            recorder.path.watch(self.module, outside_of(self.spec, self.options)),
            hide_tracing.calls_noted(self._noted, recorder.size),
            self._overriding(),
            _attention(self.options),
            on_cuda.running_on_cuda(recorder, self.options.attention) if self.options.kernels == "cuda" else contextlib.nullcontext(),
        ):
            yield

    def first_forward(self) -> FirstForward:
        """``first_forward`` of this run, whose sizes are all numbers."""
        recorder = self.recorder
        for name, parameter in self.module.named_parameters():
            recorder.tensor(parameter, name)
        loss = None
        with self._running(), self._model_reads(), self.saved_tensors.watching():
            if self.optimizer is None:
                self._forward(1)
            else:
                loss = self._training_forward(watched=False)
        nbytes = {storage: int(size) for storage, size in recorder.nbytes.items()}
        alive = [nbytes[storage] for storage in recorder.alive]
        del loss
        made = self.saved_tensors.packed + Counter(op.name for op in recorder.ops)
        trained = sum(p.requires_grad for p in self.module.parameters())
        totals = Counter(operators=len(recorder.ops), storages=len(nbytes), bytes=sum(nbytes.values()), trained=trained)
        return FirstForward(made + totals + Counter(alive=len(alive), bytes_alive=sum(alive)), tuple(recorder.ops))

    def _registered_since(self, buffers: Sequence[tuple[str, Tensor]]) -> tuple[tuple[str, Tensor], ...]:
        """Further buffers, which the steps themselves register: a mask that a module keeps from its first forward on."""
        before = {tensor.storage for _, tensor in buffers}
        now = ((name, self.recorder.tensor(buffer, name)) for name, buffer in _dense_buffers(self.module) if self.recorder.knows(buffer))
        return tuple((name, tensor) for name, tensor in now if tensor.storage not in before)

    def _state(self) -> tuple[tuple[str, str, Tensor], ...]:
        """(parameter, key, tensor) of the optimizer's state."""
        if self.optimizer is None:
            return ()
        names = {id(p): name for name, p in self.masters.named()}
        # A class may store lists of tensors for a parameter, and tensors for no particular parameter.
        states = [(names.get(id(key), OPTIMIZER), part) for key, part in self.optimizer.state.items()]
        return tuple(
            (name, str(key), self.recorder.tensor(tensor, name))
            for name, part in states
            for key, value in (part.items() if isinstance(part, Mapping) else [("", part)])
            for tensor in tensors_in(value)
        )

    def _forward(self, number: int) -> None:
        """A forward-only step. Its result is freed at the end of the window, as the loss of a training step is."""
        recorder = self.recorder
        recorder.step, recorder.phase = number, "forward"
        start = len(recorder.events)
        with _no_gradients(self.options), precision.autocast(self.options.precision), self._model_reads():
            result = result_of(self.spec, self.module, self.inputs, self.options)
        self.windows.append((start, len(recorder.events)))
        del result
        recorder.phase = ""

    def _step(self, number: int, optimizer: torch.optim.Optimizer) -> None:
        recorder = self.recorder
        recorder.step = number
        start = len(recorder.events)
        for micro_batch in range(int(self.options.accumulation)):
            # Hooks may change lifetimes slightly, so they watch the first forward and not the counted one.
            with self._model_reads():
                loss = self._training_forward(watched=number == 1 and micro_batch == 0)
                self._backward(loss)
        self._update(optimizer)
        self.windows.append((start, len(recorder.events)))
        del loss
        recorder.phase = ""
        if number == 1:
            self.saved_tensors.dropped()

    def _training_forward(self, watched: bool) -> torch.Tensor:
        recorder = self.recorder
        recorder.phase = "forward"
        before = set(recorder.alive)
        with self.saved_tensors.watching() if watched else contextlib.nullcontext():
            loss = self._loss()
        if watched:
            self.saved_tensors.returned(loss)
        self.activation_storages |= recorder.alive - before
        return loss

    def _backward(self, loss: torch.Tensor) -> None:
        self.recorder.phase = "backward"
        if not loss.requires_grad:
            raise SpecError(f"{self.spec.name}: the loss depends on no parameter that requires a gradient; {_NOT_TRAINED}")
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]  # untyped in torch
        self._note_gradients()

    def _loss(self) -> torch.Tensor:
        """The loss of one micro-batch, divided by the number of micro-batches per step."""
        with precision.autocast(self.options.precision):
            loss = _loss(self.spec, self.module, self.inputs)
        return loss if self.options.accumulation == "1" else loss / int(self.options.accumulation)

    def _update(self, optimizer: torch.optim.Optimizer) -> None:
        recorder = self.recorder
        recorder.phase = "optimizer"
        self.masters.take_gradients()
        self._note_gradients()
        if self.scaler is None:
            optimizer.step()
        else:
            with recorder.unbacked.no_overflow():
                self.scaler.step(optimizer)
                self.scaler.update()
        self.masters.copy_back()
        zeroed = self.options.zero_grad == "zero"
        recorder.phase = "optimizer" if zeroed else "zero_grad"
        optimizer.zero_grad(set_to_none=not zeroed)

    def _note_gradients(self) -> None:
        """Note the gradients after the backward, and the storages of those of fp32 copies."""
        recorder = self.recorder
        if recorder.phase == "backward":
            for name, p in self.module.named_parameters():
                if p.grad is not None:
                    self.gradients[name] = recorder.tensor(p.grad, name)
        for name, p in (*self.module.named_parameters(), *self.masters.named()):
            if p.grad is not None:
                storage = recorder.storage(p.grad, name)
                recorder.owner[storage] = name
                self.gradient_storages.add(storage)

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
        """Role of each storage; of several roles, the first in this order."""
        roles: dict[int, str] = dict.fromkeys(self.activation_storages, "activation")
        roles.update(dict.fromkeys(self.gradient_storages, "gradient"))
        roles.update({t.storage: "optimizer state" for _, _, t in state})
        roles.update({t.storage: "input" for t in inputs})
        roles.update({t.storage: "buffer" for _, t in buffers})
        roles.update({t.storage: "parameter" for _, t in parameters})
        return roles


_NOT_TRAINED = "to use the model without training it, derive it in mode eval or infer"


@contextlib.contextmanager
def _odd_heads_unmentioned() -> Iterator[None]:
    """Ignores torch's warning that ``nn.TransformerEncoder`` has no fast path at an odd number of heads: Napkin chose that number."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"enable_nested_tensor is True.* because encoder_layer\.self_attn\.num_heads is odd")
        yield


def module_of(spec: Spec, sizes: Sizes, checkpointing: str) -> torch.nn.Module:
    """The module of a spec at ``sizes``. Raises ``SpecError`` for anything but a module, or for a part called ``*``."""
    with _odd_heads_unmentioned():
        module = built(spec, sizes, checkpointing)
    if not isinstance(module, torch.nn.Module):
        raise SpecError(f"{spec.name}: build must return a torch.nn.Module, not {type(module).__name__}")
    for name, _ in itertools.chain[tuple[str, Any]](module.named_modules(), module.named_parameters()):
        if "*" in name.split("."):
            raise SpecError(f"{spec.name}: a part of the model is called {name!r}, but closed forms write * for a loop index: rename it")
    return module


def _dense_buffers(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """All buffers but sparse ones, which are refused where an operator or the checkpoint has them."""
    return [(name, buffer) for name, buffer in module.named_buffers() if buffer.layout is torch.strided]


def _loss(spec: Spec, module: torch.nn.Module, inputs: tuple[Any, ...]) -> torch.Tensor:
    loss = spec.loss(module, *inputs)
    if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
        kind = f"a tensor of {loss.dim()} dimensions" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise SpecError(f"{spec.name}: loss must return a scalar tensor, not {kind}")
    return loss


def result_of(spec: Spec, module: torch.nn.Module, inputs: tuple[Any, ...], options: Options) -> Any:
    """The result of a step without gradients: the prediction in mode ``infer``, else the loss."""
    predict = spec.predict_in(options.mode)
    return _loss(spec, module, inputs) if predict is None else predict(module, *inputs)


def outside_of(spec: Spec, options: Options) -> str:
    """The module path of operators that run outside the module: a prediction's are the model's own."""
    return LOSS if spec.predict_in(options.mode) is None else TOP


def _no_gradients(options: Options) -> Any:
    return torch.inference_mode() if options.mode == "infer" else torch.no_grad()


def _attention(options: Options) -> Any:
    return sdpa_kernel(SDPBackend.MATH) if options.attention == "math" else contextlib.nullcontext()
