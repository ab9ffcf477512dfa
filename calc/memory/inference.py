"""Memory of inference: weights in a number format, and cached keys and values.

Weights come from the traced forward, parameter by parameter; cache sizes come from the model's dimensions and the library's kind of each
layer. A cache is accepted only if a run gives the same integers at other sizes (``checked``); a layer that caches anything else is refused
by name. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import sympy as sp

from calc.derive.result import Derivation
from calc.derive.to_json import number
from calc.errors import BadInputError, UnknownQuantityError, suggestion
from calc.graph.basis import Basis, in_dimensions
from calc.graph.step import Graph, Size, Tensor
from calc.memory.caches import Layers, layers_of
from calc.options import Options
from calc.pipeline.pipeline import derive, trace
from calc.pipeline.verdict import EXACT, Verdict, judged
from calc.platform.progress import Progress
from calc.spec import Spec
from calc.symbolic.algebra import to_sympy
from calc.symbolic.assignments import TYPED, sizes_text
from calc.symbolic.branches import at_hand
from calc.symbolic.exact import evaluate_text

if TYPE_CHECKING:
    from calc.measure.cache import CacheElements


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """A storage format of weights. ``group``: number of elements in a row that share a scale; 0: a whole row; None: the whole tensor, or no
    scales.

    Formats with scales apply to matrices in matmuls; looked-up tables, norms and biases stay in bf16, as in libraries.
    """

    bits: int
    scale_bytes: int = 0
    group: int | None = None
    zero_bits: int = 0
    meaning: str = ""

    @property
    def scaled(self) -> bool:
        return self.scale_bytes > 0


WEIGHTS: dict[str, WeightFormat] = {
    "fp32": WeightFormat(32, meaning="4 bytes each"),
    "bf16": WeightFormat(16, meaning="2 bytes each"),
    "fp16": WeightFormat(16, meaning="2 bytes each"),
    "fp8": WeightFormat(8, 4, None, meaning="1 byte each, an fp32 scale a tensor"),
    "int8": WeightFormat(8, 2, 0, meaning="1 byte each, a 2-byte scale a row"),
    "int4": WeightFormat(4, 2, 128, meaning="half a byte each, a 2-byte scale a group"),
    "int4-zero": WeightFormat(4, 2, 128, 4, meaning="half a byte each, a 2-byte scale and a 4-bit zero point a group"),
}
CACHE: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
_BF16_BYTES = 2  # bytes of what stays in bf16
_TABLE = "an embedding table is looked up, not multiplied: it stays"
_BIAS = "a bias is added: it stays"
_VECTOR = "a vector, such as norm weights, is applied elementwise: it stays"


@dataclass(frozen=True, slots=True)
class InferenceTerm:
    """One addend: ``expr`` in the model's dimensions, its value at the requested sizes, and the reason. ``looked_up``: an embedding
    table that no matmul uses, so that a token reads one row of it."""

    label: str
    expr: str
    value: int
    because: str
    looked_up: bool = False


@dataclass(frozen=True, slots=True)
class ByteSum:
    """Bytes as a sum of lines."""

    format: str
    expr: str
    value: int
    lines: tuple[InferenceTerm, ...]


@dataclass(frozen=True, slots=True)
class Inference:
    """Memory of inference at ``sizes``. ``cache`` is ``None`` without a confirmed cache, with the reason in ``unknown``."""

    model: str
    source: str
    sizes: Mapping[str, int]
    weights: ByteSum
    cache: ByteSum | None
    unknown: str
    checks: tuple[Verdict[int], ...]

    @property
    def total(self) -> int | None:
        """Bytes of weights and cache; excludes operator temporaries (``memory.peak`` with mode infer includes them)."""
        return None if self.cache is None else self.weights.value + self.cache.value


# -- weights -----------------------------------------------------------------------------------------------------------------


def weight_format(name: str, group: int | None = None) -> WeightFormat:
    """A format by name, with another group."""
    if name not in WEIGHTS:
        raise BadInputError(f"unknown weight format {name[:40]!r}: {suggestion(name, WEIGHTS)}")
    weights = WEIGHTS[name]
    if group is None:
        return weights
    if not weights.group:
        raise BadInputError(f"{name} has no groups of weights: give a group with int4 or int4-zero")
    if group < 2 or group % 2:
        raise BadInputError(f"a group of {group} weights cannot be packed: give an even number from 2")
    return replace(weights, group=group)


def weights(graph: Graph, derivation: Derivation, sizes: Mapping[str, int], name: str, group: int | None = None) -> ByteSum:
    """Bytes of the weights, term by term of the parameters."""
    how = weight_format(name, group)
    shapes, tables = _shapes(graph), _looked_up(graph)
    multiplied = _used_elsewhere(graph, tables)
    lines = []
    for term in derivation["parameters"].terms:
        parameter = next((p for p in shapes if term.stands_for(p)), None)
        if parameter is None:
            raise UnknownQuantityError(f"{term.module_path[:60]}: no traced parameter has this name, so its shape is unknown")
        count = at_hand(term.expr, derivation.sizes)
        text, because = _bytes_of(count, shapes[parameter], parameter in tables, parameter.endswith("bias"), how)
        looked_up = parameter in tables and parameter not in multiplied
        lines.append(InferenceTerm(term.module_path, text, _value(text, sizes), because, looked_up))
    return _amount(name, lines)


def _bytes_of(count: str, shape: Sequence[str], looked_up: bool, bias: bool, how: WeightFormat) -> tuple[str, str]:
    """Bytes of all tensors of one term, each of ``shape``; ``count`` are the elements of all of them."""
    if not how.scaled:
        return _text(to_sympy(count) * how.bits / 8), how.meaning
    if looked_up or len(shape) < 2 or bias:
        why = _TABLE if looked_up else _BIAS if bias else _VECTOR
        return _text(to_sympy(count) * _BF16_BYTES), f"{why} in bf16, {_BF16_BYTES} bytes each"
    *leading, last = (to_sympy(side) for side in shape)
    rows = sp.Mul(*leading)
    tensors = sp.cancel(to_sympy(count) / (rows * last))
    packed = rows * (last if how.bits == 8 else sp.ceiling(last * how.bits / 8))
    groups = sp.Integer(1) if how.group is None else rows * (sp.ceiling(last / how.group) if how.group else 1)
    zeros = sp.ceiling(groups * how.zero_bits / 8)
    of_group = "" if not how.group else f" of {how.group} along the last dimension"
    return _text(sp.expand(tensors * (packed + how.scale_bytes * groups + zeros))), f"{how.meaning}{of_group}"


def _shapes(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The shape of every recorded parameter, in the model's dimensions."""
    basis = graph.as_basis()
    written: dict[Size, str] = {}

    def side(size: Size) -> str:
        if size not in written:
            written[size] = str(size) if isinstance(size, int) else _folded(in_dimensions(size, basis), basis)
        return written[size]

    return {name: tuple(map(side, t.shape)) for name, t in graph.traces[0].parameters}


def _folded(text: str, basis: Basis) -> str:
    """``h*k`` written ``d`` where the heads share the width."""
    expression = to_sympy(text)
    for fold in basis.folds:
        if fold.plus == 0 and fold.quotient in basis.define:
            expression = expression.subs(to_sympy(f"{fold.part}*{fold.quotient}"), to_sympy(fold.whole))
    return str(expression)


def _looked_up(graph: Graph) -> set[str]:
    """Parameters whose rows an embedding reads. A table that is also multiplied (a tied head) keeps the format of a matrix."""
    record = graph.traces[0]
    read = {dict(op.args)["weight"].storage for op in record.ops if op.name == "aten.embedding.default"}
    return {name for name, tensor in record.parameters if tensor.storage in read}


def _used_elsewhere(graph: Graph, tables: set[str]) -> set[str]:
    """The ``tables`` that an operator other than an embedding reads too: a tied head multiplies by all rows."""
    record = graph.traces[0]
    names = {tensor.storage: name for name, tensor in record.parameters if name in tables}
    arguments = (argument for op in record.ops if op.name != "aten.embedding.default" for _, argument in op.args)
    return {names[argument.storage] for argument in arguments if isinstance(argument, Tensor) and argument.storage in names}


# -- keys and values -----------------------------------------------------------------------------------------------------------


def cache(layers: Sequence[Layers], sizes: Mapping[str, int], name: str) -> ByteSum:
    """Bytes of keys and values of B sequences of T tokens."""
    lines = []
    for group in layers:
        text = "*".join((f"{CACHE[name]}*B", *map(_factor, (group.count, group.positions, group.values))))
        lines.append(InferenceTerm(f"{group.kind} layers", text, _value(text, sizes), f"{group.because}; {CACHE[name]} bytes each"))
    return _amount(name, lines)


def _factor(text: str) -> str:
    return f"({text})" if " + " in text or " - " in text else text


def _amount(name: str, lines: Sequence[InferenceTerm]) -> ByteSum:
    total = sp.Add(*(to_sympy(line.expr) for line in lines))
    return ByteSum(name, _text(total), sum(line.value for line in lines), tuple(lines))


def _text(expr: sp.Expr) -> str:
    """The expression in Napkin's syntax: SymPy's own, except for the case of function names."""
    return str(expr)


def _value(text: str, sizes: Mapping[str, int]) -> int:
    size: Fraction = evaluate_text(text, sizes)
    if size.denominator != 1:
        raise BadInputError(f"{text} is {size}, not an integer number of bytes, at these sizes: choose sizes that divide")
    return int(size)


# -- all of it -----------------------------------------------------------------------------------------------------------------


def inference(
    spec: Spec,
    sizes: Mapping[str, int] | None = None,
    *,
    weights_in: str = "bf16",
    cache_in: str = "bf16",
    group: int | None = None,
    remember: bool = True,
    progress: Progress = lambda _: None,
) -> Inference:
    """Memory of inference with ``spec`` at ``sizes``: weights, and the cache of T tokens of B sequences, checked by a run."""
    weight_format(weights_in, group)
    if cache_in not in CACHE:
        raise BadInputError(f"unknown cache format {cache_in[:40]!r}: {suggestion(cache_in, CACHE)}")
    at = spec.sizes(sizes or {})
    graph = trace(spec, sizes, options=Options(mode="infer"), cache=remember, progress=progress)
    derivation = derive(graph, sizes)
    weight_bytes = weights(graph, derivation, {**derivation.sizes, **at}, weights_in, group)
    progress("running the model to measure the cache of every layer")
    amount, unknown, checks = measured_cache(spec, at, cache_in)
    return Inference(spec.name, spec.source, at, weight_bytes, amount, unknown, checks)


def measured_cache(spec: Spec, at: Mapping[str, int], cache_in: str) -> tuple[ByteSum | None, str, tuple[Verdict[int], ...]]:
    """Keys and values, if a run confirms them; else why not."""
    try:
        layers = layers_of(spec, at)
    except BadInputError as error:
        return None, str(error), ()
    checks = tuple(checked(spec, layers, at))
    failed = [c for c in checks if c.failed]
    if not failed and checks[0].verdict != EXACT:
        return None, f"no run confirms a cache: {checks[0].because}", checks
    if failed:
        worst = failed[0]
        why = f"the closed form gives {worst.derived:,} bytes but a run has {worst.measured:,} at {sizes_text(worst.sizes, TYPED)}"
        return None, f"the cache of a layer differs from that of its kind: {why}", checks
    return cache(layers, at, cache_in), "", checks


_CACHE = "cache.bytes in fp32"
_LONGEST_RUN = 8192  # tokens of a real run of a narrow model: a second or two


def checked(spec: Spec, layers: Sequence[Layers], at: Mapping[str, int]) -> list[Verdict[int]]:
    """Verdicts of a real run at the spec's small sizes, and of a run without memory at the requested ones, beyond the longest window.

    A class that reads numbers from its tensors cannot run without memory: a narrow model then runs for real beyond the window.
    """
    from calc.measure.cache import cache_elements

    small = spec.sizes({**spec.check_at, "B": 2})
    longest = max((_window(group) for group in layers), default=0)
    sizes = {name: size for name, size in at.items() if not spec.dimensions[name].tied}
    full = cache_elements(spec, _lengthened(spec, sizes, max(at["T"], longest + 3)), without_memory=True)
    runs = [cache_elements(spec, small), full]
    if full.elements is None and small["T"] <= longest <= _LONGEST_RUN:
        runs.append(cache_elements(spec, _lengthened(spec, spec.check_at, longest + 3)))
    return [_judged(layers, run) for run in runs]


def _lengthened(spec: Spec, sizes: Mapping[str, int], length: int) -> dict[str, int]:
    """The sizes with three sequences of that length, or of the model's own length if its table of positions is shorter."""
    try:
        return spec.sizes({**sizes, "B": 3, "T": length})
    except BadInputError:
        return spec.sizes({**sizes, "B": 3})


def _window(group: Layers) -> int:
    numbers = [int(n) for n in to_sympy(group.positions).atoms(sp.Integer)] if "Min" in group.positions else []
    return max(numbers, default=0)


def _judged(layers: Sequence[Layers], run: CacheElements) -> Verdict[int]:
    derived = sum(_value(f"B*({g.count})*({g.positions})*({g.values})", run.sizes) for g in layers)
    if run.elements is None:
        return replace(judged(_CACHE, None, None, run.instrument, because=run.because), sizes=run.sizes)
    return replace(judged(_CACHE, 4 * derived, 4 * run.elements, run.instrument, because=run.because), sizes=run.sizes)


def document(inferred: Inference) -> dict[str, Any]:
    """The ``"schema": 2`` document of an inference, as plain data."""

    def amount(a: ByteSum | None, unknown: str = "") -> dict[str, Any]:
        if a is None:
            return {"format": None, "expr": None, "value": None, "unit": "byte", "unknown": unknown}
        lines = [{"what": x.label, "expr": x.expr, "value": number(x.value), "because": x.because} for x in a.lines]
        return {"format": a.format, "expr": a.expr, "value": number(a.value), "unit": "byte", "terms": lines}

    return {
        "schema": 2,
        "model": {"name": inferred.model, "source": inferred.source},
        "dims": {name: {"value": number(value)} for name, value in inferred.sizes.items()},
        "quantities": {"weights.bytes": amount(inferred.weights), "cache.bytes": amount(inferred.cache, inferred.unknown)},
        "total": number(inferred.total),
        "checks": [
            {
                "quantity": check.quantity,
                "sizes": {name: number(value) for name, value in check.sizes.items()},
                "derived": number(check.derived),
                "measured": number(check.measured),
                "instrument": check.instrument,
                "verdict": check.verdict,
                "because": check.because,
            }
            for check in inferred.checks
        ],
    }
