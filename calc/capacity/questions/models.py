"""Exact values that a model supplies to a question, from closed forms: parameters, FLOPs, cache and peak memory.

Stored closed forms need neither torch nor SymPy; without them the model is derived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.capacity.questions.given import nearest
from calc.capacity.questions.peak_line import PeakLine, line_through
from calc.capacity.questions.question import ACTIVE
from calc.dimensions import Dim, evaluate
from calc.errors import BadInputError, NapkinError, listed
from calc.graph.folds import named_quotient
from calc.options import MASTER
from calc.platform.progress import Progress
from calc.symbolic.assignments import sizes_text
from calc.symbolic.exact import evaluate_text
from calc.symbolic.expression import Expression, Name, rewritten
from calc.symbolic.parser import free_names, parse
from calc.symbolic.readable import readable
from calc.symbolic.writer import as_text

if TYPE_CHECKING:
    from calc.capacity.questions.weights import InUse
    from calc.derive.result import Derivation, Quantity
    from calc.graph.guards import TracedDim
    from calc.spec import Spec


_MODEL_FLOPS = ((1, "flops.forward.matmul"), (1, "flops.backward.matmul"), (-1, "flops.backward.recompute"))
_FORWARD = ((1, "flops.forward.matmul"),)
_LENGTH = 128  # shortest sequence length at which the fit evaluates a closed form, to separate the terms quadratic in T
_LONGEST = 2**40  # tokens: beyond any window of attention


def _candidates(peak: Quantity) -> list[str]:
    """The closed forms of the peak candidates, with quotients in place of the names that a trace gave them: no input has such a name."""

    def quotient(node: Expression) -> Expression | None:
        return named_quotient(node.name) if isinstance(node, Name) else None

    return [as_text(rewritten(parse(candidate.expr), quotient)) for candidate in peak.candidates]


@dataclass(slots=True)
class QuestionModel:
    """Closed forms of ``name`` for ``options``, evaluated at ``sizes``; other dimensions keep the defaults of the model."""

    name: str
    sizes: Mapping[str, int]
    options: Mapping[str, str] | None
    progress: Progress
    format: str = "bf16"
    notes: list[str] = field(default_factory=list)
    _form: Any = None
    _spec: Spec | None = None
    _derived: Derivation | None = None
    _in_use: InUse | None = None

    def __post_init__(self) -> None:
        from calc.pipeline.precomputed import stored

        self._form = stored(self.name, self.options)

    @property
    def source(self) -> str:
        """Whether it is stored is not part of an answer, which does not depend on earlier commands."""
        return "closed form"

    def at(self, quantity: str, **changed: int) -> int:
        """The exact integer value of one quantity. Raises BadInputError at invalid sizes."""
        sizes = {**self.sizes, **changed}
        if self._form is not None and self._form.covers(sizes):
            return int(self._form.quantity(quantity).at(**sizes))
        return int(self._derivation[quantity].at(**sizes))

    def peak(self, **changed: int) -> tuple[int, str, str]:
        """Peak of live bytes of a step, the peak candidate that has this value at these sizes (the number itself if there is none), and its
        source."""
        peak, value = self._peak(changed), self.at("memory.peak", **changed)
        if not peak.candidates:
            return value, f"{value}", f"traced at these sizes; memory.peak has no closed form: {peak.unknown}"
        at = self.all_sizes(**changed)
        largest = next((form for form in _candidates(peak) if evaluate_text(form, at) == value), None)
        if largest is None:
            return value, f"{value}", "traced at these sizes; no closed form of memory.peak gives this number here"
        return value, largest, "from the closed form of memory.peak"

    def _peak(self, changed: Mapping[str, int]) -> Quantity:
        sizes = {**self.sizes, **changed}
        stands = self._form is not None and self._form.covers(sizes)
        return (self._form.derivation(sizes) if stands else self._derivation.at_sizes(sizes))["memory.peak"]

    def peak_line(self, dim: str, size: int) -> PeakLine | None:
        """The peak in ``dim`` around ``size``, the other sizes being numbers; None where a candidate is no line in it."""
        forms = _candidates(self._peak({dim: size}))

        def values(at: int) -> list[Fraction] | None:
            try:
                sizes = self.all_sizes(**{dim: at})
                return [Fraction(evaluate_text(form, sizes)) for form in forms]
            except NapkinError:  # no valid size
                return None

        return line_through(values, self.dimension(dim), size, lambda at: self.at("memory.peak", **{dim: at}))

    def all_sizes(self, **changed: int) -> dict[str, int]:
        """The value of every dimension, defaults included."""
        sizes = {**self.sizes, **changed}
        if self._form is not None:
            return dict(self._form.sizes(sizes))
        return dict(self.spec.sizes(sizes))

    @property
    def spec(self) -> Spec:
        """The model from ``calc.models.load``, which imports torch."""
        if self._spec is None:
            from calc.models.load import load

            self._spec = load(self.name)
        return self._spec

    @property
    def _own(self) -> Mapping[str, TracedDim | Dim]:
        """Dimensions of the model, without deriving it."""
        return {d.name: d for d in self._form.dims} if self._form is not None else self.spec.dimensions

    def require_sizes(self, keys: Iterable[str], question: str) -> None:
        """Refuse invalid sizes; the error suggests one of ``keys`` for an unknown dimension, or the questions that have it."""
        from calc.capacity.questions.registry import having

        for name in self.sizes:
            if name in self._own:
                continue
            near, others = nearest(name, keys), having(name)
            if others or near:
                hint = f"did you mean {near}?" if near else f"it is a key of {listed(others)}"
                raise BadInputError(f"neither {question} nor {self.name[:40]} has {name[:40]!r}: {hint}")
        if self._form is not None:
            self._form.covers(self.sizes)
        else:
            self.spec.sizes(self.sizes)

    def bound(self, name: str) -> tuple[str, int] | None:
        """The upper bound of a dimension, as text and as a number; None if unbounded."""
        text = self._own[name].at_most if name in self._own else None
        return None if text is None else (text, int(evaluate(text, self.all_sizes())))

    def dimension(self, name: str) -> Any:
        """A dimension of the trace: its value, divisor and bound."""
        dims = self._form.dims if self._form is not None else self._derivation.dims
        dimension = next((d for d in dims if d.name == name), None)
        if dimension is None:
            raise BadInputError(f"{self.name[:40]} has no dimension {name}: it has {', '.join(d.name for d in dims)}")
        return dimension

    @property
    def _derivation(self) -> Derivation:
        """The derivation at ``sizes``."""
        if self._derived is None:
            from calc.options import made
            from calc.pipeline.pipeline import derive
            from calc.pipeline.precomputed import keep

            self._derived = derive(self.spec, self.sizes, options=made(**(self.options or {})), progress=self.progress)
            keep(self.name, self._derived)
        return self._derived

    # -- values that questions use ---------------------------------------------------------------------------------------------------

    def gives(self, symbol: str) -> tuple[Fraction, str, str]:
        """The value of one of ``_GIVEN``, its meaning and its source."""
        value, meaning = _GIVEN[symbol](self)
        return value, meaning, f"{self.name}: {_SOURCES.get(symbol, self.source)}"

    def _flops(self, signed: tuple[tuple[int, str], ...], **changed: int) -> int:
        return sum(sign * self.at(quantity, **changed) for sign, quantity in signed)

    def _tokens(self, sizes: Mapping[str, int]) -> int:
        return sizes.get("B", 1) * sizes.get("T", 1)

    def _at(self, sizes: Mapping[str, int]) -> str:
        return f"at T = {sizes['T']:,}" if "T" in sizes else "of one example"

    def parameters(self) -> tuple[Fraction, str]:
        return Fraction(self.at("parameters")), "parameters"

    def active(self) -> tuple[Fraction, str]:
        return Fraction(self.at("parameters.active")), ACTIVE.meaning

    def state(self) -> tuple[Fraction, str]:
        """Bytes of weights, gradients, optimizer state and fp32 copies, with the meaning."""
        copies = ("master_weights.bytes",) if (self.options or {}).get("precision") == MASTER else ()
        nbytes = sum(self.at(name) for name in ("parameters.bytes", "gradients.bytes", "optimizer_state.bytes", *copies))
        return Fraction(nbytes), "weights, gradients, copies and optimizer state of its own step"

    def step_peak(self) -> tuple[Fraction, str]:
        sizes = self.all_sizes()
        at = sizes_text({name: sizes[name] for name in ("B", "T") if name in sizes})
        return Fraction(self.at("memory.peak")), f"peak of live bytes of its own step at {at}, activations included"

    def per_token(self) -> tuple[Fraction, str]:
        sizes = self.all_sizes()
        meaning = f"model FLOPs of one token {self._at(sizes)}, forward and backward, without recomputation"
        return Fraction(self._flops(_MODEL_FLOPS), self._tokens(sizes)), meaning

    def prompt(self) -> tuple[Fraction, str]:
        sizes = self.all_sizes()
        return Fraction(self._flops(_FORWARD), sizes.get("B", 1)), f"FLOPs of the forward of one sequence {self._at(sizes)}"

    def by_length(self, signed: tuple[tuple[int, str], ...]) -> tuple[Fraction, Fraction]:
        """a and b of a·T + b·T² for one sequence, fitted at two lengths and checked at two more."""
        if "T" not in self.all_sizes():
            raise BadInputError(f"{self.name[:40]} reads no sequence: it has no dimension T")
        t = _LENGTH

        def of(length: int) -> Fraction:
            return Fraction(self._flops(signed, T=length), self._tokens(self.all_sizes(T=length)))

        b = (of(2 * t) - of(t)) / t
        a = of(t) - b * t
        if any(of(k * t) != a + b * k * t for k in (3, 4)):
            raise BadInputError(f"{self.name[:40]}: its FLOPs have other terms in T than a linear and a square one")
        return a, b

    @property
    def in_use(self) -> InUse:
        """The model traced in inference mode."""
        if self._in_use is None:
            from calc.capacity.questions.weights import in_use

            self._in_use = in_use(self.name, self.sizes, self.progress)
        return self._in_use

    def weights_bytes(self) -> tuple[Fraction, str]:
        return Fraction(self.in_use.weights(self.format).nbytes), f"bytes of its weights, matrices in {self.format}"

    def weights_read(self) -> tuple[Fraction, str]:
        """Bytes of weights read for one token, the lower bound for any number of tokens."""
        if "T" not in self._own:
            raise BadInputError(f"{self.name[:40]} reads no sequence: it has no dimension T, so it generates no tokens")
        weights = self.in_use.weights(self.format)
        parts = " and ".join(str(share) for share in sorted({place.share for place in weights.partial}))
        experts = f"{parts} of the experts', and " if parts else ""
        return weights.read(), f"bytes of weights read for one token: {experts}no tables that are only looked up"

    def token_flops(self) -> tuple[Fraction, str]:
        return Fraction(self.in_use.flops), "FLOPs of the forward of one token, without those before it"

    def cache_values(self) -> tuple[Fraction, str]:
        """Cached values per token, from the layers of the model; a real run at small sizes must cache the same number.

        A layer with a window, or with a state of fixed size, does not cache every token: then the average at the length that is given.
        """
        from calc.memory.inference import measured_cache

        sizes = self.spec.sizes({**self.sizes, "B": 1})
        self.progress("running the model to measure the cache of every layer")
        cached, unknown, _ = measured_cache(self.spec, sizes, "fp8")
        if cached is None:
            raise BadInputError(f"{self.name[:40]}: {unknown}")
        longer = {**sizes, "T": _LONGEST}
        partly = [x.label for x in cached.lines if evaluate_text(x.expr, longer) * sizes["T"] != x.value * _LONGEST]
        factors = sizes_text({name: size for name, size in sizes.items() if name in free_names(cached.expr) - {"B", "T"}})
        formula = f"{readable(cached.expr)} elements of B·T tokens, {factors}"
        if not partly:
            return Fraction(cached.value, sizes["T"]), f"cached values per token: {formula}"
        if "T" not in self.sizes:
            raise BadInputError(f"{self.name[:40]}: {listed(partly)} do not cache every token: give the length, e.g. T={sizes['T']}")
        average = f"cached values per token, on average at T = {sizes['T']:,}, as {listed(partly)} do not cache every token: {formula}"
        return Fraction(cached.value, sizes["T"]), average


def _of(index: int, signed: tuple[tuple[int, str], ...], meaning: str) -> Callable[[QuestionModel], tuple[Fraction, str]]:
    return lambda model: (model.by_length(signed)[index], meaning)


def _size(name: str, meaning: str) -> Callable[[QuestionModel], tuple[Fraction, str]]:
    def size(model: QuestionModel) -> tuple[Fraction, str]:
        model.dimension(name)  # or the model is refused
        return Fraction(model.all_sizes()[name]), meaning

    return size


_RECORDED = "its traced forward"
_SOURCES = {
    "cache_per_token": "from the caches of its layers, confirmed by a run",
    "weights_bytes": _RECORDED, "weights_read": _RECORDED, "token_flops": _RECORDED,
}  # fmt: skip
_GIVEN: dict[str, Callable[[QuestionModel], tuple[Fraction, str]]] = {
    "layers": _size("L", "layers"),
    "width": _size("d", "model width"),
    "sequence": _size("T", "tokens of a sequence"),
    "kv-heads": _size("g", "key/value heads"),
    "head-width": _size("k", "width of a head"),
    "experts-per-token": _size("e", "experts per token"),
    "parameters": QuestionModel.parameters,
    "active": QuestionModel.active,
    "state_bytes": QuestionModel.state,
    "step_peak": QuestionModel.step_peak,
    "flops_per_token": QuestionModel.per_token,
    "forward_flops": QuestionModel.prompt,
    "weights_bytes": QuestionModel.weights_bytes,
    "weights_read": QuestionModel.weights_read,
    "token_flops": QuestionModel.token_flops,
    "cache_per_token": QuestionModel.cache_values,
    "forward_linear": _of(0, _FORWARD, "forward FLOPs of one token that do not grow with the length"),
    "forward_quadratic": _of(1, _FORWARD, "forward FLOPs of attention for a token and a position"),
    "step_linear": _of(0, _MODEL_FLOPS, "model FLOPs of one token that do not grow with the length, forward and backward"),
    "step_quadratic": _of(1, _MODEL_FLOPS, "model FLOPs of attention for a token and a position, forward and backward"),
}


def described(
    name: str, sizes: Mapping[str, int], progress: Progress, options: Mapping[str, str] | None = None, weights_in: str = "bf16"
) -> QuestionModel:
    """The model of that name, as ``calc.models.load`` takes it; for inference, its weights are in the format ``weights_in``."""
    return QuestionModel(name, dict(sizes), options, progress, weights_in)
