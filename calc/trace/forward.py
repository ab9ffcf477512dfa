"""Traces the forward of a training step as a program: values with their identity, in symbolic sizes.

The recorder of training steps follows storages and holds no reference to a tensor. The recorder here holds every tensor until the forward
returns, so that each tensor is one value; it traces no memory.
"""

from __future__ import annotations

import contextlib
import math
import platform
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from calc.errors import SpecError, SpecializationError, TraceError
from calc.experiment.inputs import inputs_at
from calc.experiment.precision import double_by_default
from calc.graph.basis import Basis, basis_of
from calc.graph.forward import ComputedNumber, Instruction, Program, ProgramLeaf, Ref, Value
from calc.options import Options
from calc.platform.torch_private import FakeTensor, no_modes, torch_version
from calc.spec import Sizes, Spec
from calc.symbolic.evaluation import PythonOperators
from calc.symbolic.parser import parse
from calc.trace import step
from calc.trace.hints import HintRules, hints
from calc.trace.kernels import fake_kernels, hide_tracing, recurrent
from calc.trace.kernels.operator_overrides import overriding_operators
from calc.trace.kernels.result_cache import Repeats
from calc.trace.model_errors import refusing
from calc.trace.recorder import Recorder, tensors_in
from calc.trace.source_lines import doing
from calc.trace.symbolic_sizes import SizeEnv
from calc.trace.tracing import fake_tensors
from calc.trace.values import facts

_LIFT = torch.ops.aten.lift_fresh.default
_MOST_ELEMENTS = 4096


class ProgramRecorder(Recorder):  # type: ignore[no-untyped-call]  # torch's modes are untyped
    """Traces one forward: set ``phase`` to ``"forward"`` around it."""

    def __init__(self, env: SizeEnv | None) -> None:
        super().__init__(Repeats(env), {})
        self.made: list[tuple[torch.Tensor, Value]] = []
        self.leaves: list[ProgramLeaf] = []
        self.instructions: list[Instruction] = []
        self._of: dict[int, int] = {}
        self.written_by_hand = ""

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """Context in which nothing is traced. Unlike in a step, a number read out of data is part of the equations, so it is not replaced
        by an arbitrary one."""
        with self.unrecorded():
            yield

    @contextlib.contextmanager
    def hand_written(self) -> Iterator[None]:
        """Context in which the forward of a ``torch.autograd.Function`` is noted with the name of its class: it has its own backward."""
        apply = torch.autograd.Function.__dict__["apply"]

        def noted(cls: Any, *args: Any, **kwargs: Any) -> Any:
            before, self.written_by_hand = self.written_by_hand, cls.__name__
            try:
                return apply.__get__(None, cls)(*args, **kwargs)
            finally:
                self.written_by_hand = before

        torch.autograd.Function.apply = classmethod(noted)  # type: ignore[assignment, method-assign]  # restored below
        try:
            yield
        finally:
            torch.autograd.Function.apply = apply  # type: ignore[method-assign]  # restored

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if func is _LIFT and self.phase:
            self.literal(out, getattr(out, "constant", None))
        return out

    def value(self, tensor: torch.Tensor) -> int:
        """The index of a tensor's value. A tensor that no traced operator computed is a constant of the model's code."""
        index = self._of.get(id(tensor))
        if index is not None:
            return index
        if tensor.dtype.is_complex:
            raise TraceError(f"complex tensor at {self.path.current}: equations are over real numbers; write it with two real tensors")
        return self.literal(tensor, tensor if not isinstance(tensor, FakeTensor) else getattr(tensor, "constant", None))

    def note(self, tensor: torch.Tensor) -> int:
        """Assign a new value to ``tensor``."""
        index = len(self.made)
        size = self.size
        shape = tuple(size(s) for s in tensor.shape)
        strides = tuple(size(s) for s in tensor.stride())
        dtype = str(tensor.dtype).removeprefix("torch.")
        storage = self.storage(tensor, self.path.current)
        value = Value(index, shape, dtype, storage, size(tensor.storage_offset()), strides, facts.writes_to(tensor))
        self.made.append((tensor, value))
        self._of[id(tensor)] = index
        return index

    def leaf(self, tensor: torch.Tensor, role: str, name: str, below: int | str | None = None) -> int:
        index = self._of.get(id(tensor))
        if index is None:
            index = self.note(tensor)
            self.leaves.append(ProgramLeaf(index, role, name, None, below))
        return index

    def literal(self, tensor: torch.Tensor, constant: torch.Tensor | None) -> int:
        index = self._of.get(id(tensor))
        if index is not None:
            return index
        if constant is None or constant.numel() > _MOST_ELEMENTS:
            raise TraceError(
                f"the forward uses a tensor at {self.path.current} that none of its operators computes, so equations have no name for it:"
                " register it as a buffer, or give it as an input"
            )
        with no_modes():
            data = constant.detach().to(torch.float64 if constant.is_floating_point() else torch.int64).tolist()
        index = self.note(tensor)
        self.leaves.append(ProgramLeaf(index, "literal", "", data))
        return index

    def _trace_operator(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        operator, names, mutated = self._schema(func)
        name, given = self.renamed or (operator, [*zip(names, args, strict=False), *kwargs.items()])
        written = tuple((n, self._argument(v)) for n, v in given)
        nbytes = fake_kernels.storage_bytes(func, args, dict(kwargs), out)
        if nbytes is not None:
            self.nbytes[self.storage(out, self.path.current)] = self.size(nbytes)
        outputs = tuple(self._output(t, bool(mutated)) for t in tensors_in(out))
        graded = torch.is_grad_enabled() or bool(self.written_by_hand)
        made = Instruction(len(self.instructions), name, written, outputs, mutated, self.path.current, graded, self.written_by_hand)
        self.instructions.append(made)

    def _output(self, tensor: torch.Tensor, overwritten: bool) -> int:
        """Assign a new value to a result. An in-place operator keeps the tensor and assigns a new value to it."""
        if overwritten or id(tensor) not in self._of:
            return self.note(tensor)
        return self._of[id(tensor)]

    def _argument(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return Ref(self.value(value))
        if isinstance(value, bool | str | type(None)) or type(value) is int:
            return value
        if isinstance(value, float):
            return self._number(value)
        if isinstance(value, torch.SymInt):
            size = self.size(value)
            return size if isinstance(size, int) else ComputedNumber(size)
        if isinstance(value, torch.SymFloat) and self.repeats.env is not None:
            return ComputedNumber(number_text(value.node.expr, self.repeats.env.names))
        if isinstance(value, list | tuple):
            return tuple(self._argument(v) for v in value)
        return str(value).removeprefix("torch.")

    def _number(self, value: float) -> float | ComputedNumber:
        """A number that torch computed from sizes is represented by its value at the hints; this recovers the expression in sizes."""
        env = self.repeats.env
        if env is None:
            return value
        for expr, (answer, _) in env.answers.items():
            if getattr(answer, "is_Float", False) and value != 1.0:
                text = number_text(expr, env.names)
                for power, made in _made_of(float(answer)):
                    if made == value:
                        return ComputedNumber(text if power == "1" else f"({text})**({power})")
        return value


def _made_of(number: float) -> list[tuple[str, float]]:
    """What kernels compute from a scale before they multiply by it, with its exponent."""
    if number <= 0:
        return [("1", number)]
    return [("1", number), ("1/2", math.sqrt(number)), ("-1", 1 / number), ("-1/2", 1 / math.sqrt(number)), ("-1/2", math.sqrt(1 / number))]


_POWERS = ("FloatPow", "PowByNatural", "Pow")
_QUOTIENTS = ("IntTrueDiv", "FloatTrueDiv")


def number_text(expr: Any, names: Mapping[Any, str]) -> str:
    """A number computed from sizes as text: names, numbers, + * / ** and sqrt, exp, log."""
    if expr.is_Symbol:
        return names.get(expr, str(expr))
    if expr.is_Rational:
        return f"({expr.p}/{expr.q})" if expr.q != 1 else f"({expr.p})"
    if expr.is_Float:
        return f"({float(expr)!r})"
    parts = [number_text(a, names) for a in expr.args]
    kind = type(expr).__name__
    if expr.is_Add or kind == "Plus":
        return f"({' + '.join(parts)})"
    if expr.is_Mul or kind == "Times":
        return f"({'*'.join(parts)})"
    if kind == "Minus":
        return f"({parts[0]} - {parts[1]})"
    if kind in _POWERS:
        return f"({parts[0]})**({parts[1]})"
    if kind in _QUOTIENTS:
        return f"({parts[0]})/({parts[1]})"
    if kind == "ToFloat":
        return parts[0]
    for function in ("sqrt", "exp", "log"):
        if kind in (function, f"OpaqueUnaryFn_{function}"):
            return f"{function}({parts[0]})"
    raise TraceError(
        f"a number is computed from sizes by {kind}, for which equations have no notation: write it with +, *, /, **, sqrt, exp or log"
    )


def trace_program(spec: Spec, sizes: Mapping[str, int], options: Options, doubles: bool = True) -> Program:
    """The forward of ``spec`` in symbolic sizes. Depths, and other sizes that the model reads as numbers, are the numbers in ``sizes``;
    where tracing with symbols fails, every size is a number.

    ``doubles``: tensors are float64, as in the run that equations are compared with; else they have the dtypes of a real step. Raises
    ``TraceError`` where the forward cannot be traced at all.
    """
    basis = basis_of(spec.dimensions)
    values, forward = basis.values(sizes), _ForwardTrace(spec, options, basis, doubles)
    static = {name: values[name] for name in basis.symbols if name in spec.trip_counts}
    while True:
        try:
            program = forward.program(sizes, static)
            if static.keys() == values.keys() or _same_numbers(program, forward.program(sizes, static, hint_set=1)):
                return program
            raise TraceError(f"{spec.name}: torch computes a number from sizes by operations that a trace does not see")
        except SpecializationError as pin:
            if pin.dimension in static or pin.dimension not in values:
                raise
            static = {**static, pin.dimension: values[pin.dimension]}
        except TraceError:
            if static.keys() == values.keys():
                raise
            static = dict(values)


def _same_numbers(first: Program, second: Program) -> bool:
    """Whether two traces, at different hints, contain the same numbers: a number that depends on sizes must be an expression in them."""
    if [i.name for i in first.instructions] != [i.name for i in second.instructions]:
        return True  # another case of the model, which its guards distinguish
    pairs = zip(first.instructions, second.instructions, strict=True)
    return all(_numbers(one.args) == _numbers(two.args) for one, two in pairs)


def _numbers(value: Any) -> list[str]:
    if isinstance(value, float):
        return [repr(value)]
    return [n for v in value for n in _numbers(v)] if isinstance(value, tuple) else []


@dataclass(frozen=True, slots=True)
class _ForwardTrace:
    """What each trace of one forward has in common."""

    spec: Spec
    options: Options
    basis: Basis
    doubles: bool

    def program(self, sizes: Mapping[str, int], fixed: Mapping[str, int], hint_set: int = 0) -> Program:
        """The program in symbols, except for the numbers ``fixed``; ``hint_set`` selects the hints."""
        spec, basis = self.spec, self.basis
        hint_of = {name: hint for name, hint in hints(basis, sizes, HintRules(hint_set=hint_set)).items() if name not in fixed}
        env = SizeEnv(hint_of) if hint_of else None
        at: dict[str, Any] = {**fixed, **(env.symbols if env is not None else {})}
        symbolic = Sizes(**{n: parse(text).value_in(PythonOperators(at)) for n, text in basis.define.items()})
        recorder = ProgramRecorder(env)
        made_in = double_by_default() if self.doubles else contextlib.nullcontext()
        with contextlib.redirect_stdout(sys.stderr), doing(recorder.where), refusing(spec, env), made_in, fake_tensors(env), recorder:
            result, tied = _forward(spec, symbolic, recorder, self.options)
        return Program(
            model=spec.name,
            symbols=basis.symbols,
            define=dict(basis.define),
            folds=tuple((f.whole, f.part, f.quotient) for f in basis.folds if not f.plus),
            fixed=dict(fixed),
            hints=hint_of,
            values=tuple(_with_gradient(tensor, value) for tensor, value in recorder.made),
            leaves=tuple(recorder.leaves),
            instructions=tuple(recorder.instructions),
            result=result,
            guards=tuple(env.size_guards()) if env is not None else (),
            notes=tuple(spec.notes),
            provenance={**torch_version(), "python": platform.python_version()},
            tied=tied,
            nbytes=dict(recorder.nbytes),
            predicts=spec.predict_in(self.options.mode) is not None,
        )


def _with_gradient(tensor: torch.Tensor, value: Value) -> Value:
    return Value(value.index, value.shape, value.dtype, value.storage, value.offset, value.stride, value.version, tensor.requires_grad)


def _forward(spec: Spec, sizes: Sizes, recorder: ProgramRecorder, options: Options) -> tuple[int, dict[str, tuple[str, ...]]]:
    def overriding() -> contextlib.AbstractContextManager[None]:
        return overriding_operators(recorder)

    with hide_tracing.building(), recurrent.sized(), overriding():
        module, inputs = step.module_of(spec, sizes, "none"), inputs_at(spec, sizes, options)
        module.train(options.trains)
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        recorder.leaf(parameter, "parameter", name)
    for name, buffer in module.named_buffers():
        recorder.leaf(buffer, "buffer", name)
    for i, tensor in enumerate(tensors_in(inputs)):
        count = facts.index_bound(facts.fact_of(tensor))
        recorder.leaf(tensor, "input", str(i), None if count is None else recorder.size(count))
    with (
        recorder.path.watch(module, step.outside_of(spec, options)),
        overriding(),
        recorder.hand_written(),
        step._attention(options),
    ):
        recorder.phase = "forward"
        result = step.result_of(spec, module, inputs, options)
        recorder.phase = ""
    if not isinstance(result, torch.Tensor):
        raise SpecError(f"{spec.name}: equations are of a prediction that is one tensor, not of a {type(result).__name__}")
    if options.trains and not result.requires_grad:
        raise SpecError(f"{spec.name}: the loss depends on no parameter that requires a gradient")
    return recorder.value(result), {shared[0]: tuple(shared[1:]) for shared in names.values() if len(shared) > 1}
