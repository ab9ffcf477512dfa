"""A derivation written by hand: a tiny GPT of the shape a real one has, without tracing anything.

Reports must not care where a derivation comes from, so their tests do not wait for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calc.derive.names import PeakPlace, SavedBefore, StepPlace, TensorName
from calc.derive.result import (
    Candidate,
    Certificate,
    Derivation,
    Quantity,
    QuantityPart,
    QuantityTerm,
    SavedTensor,
    Step,
    StepCheck,
)
from calc.dimensions import Dim, resolve
from calc.graph.coverage import CoverageRow
from calc.graph.step import Assumption, TracedDim
from calc.pipeline.verdict import Verdict as Verdict
from calc.symbolic import tree
from calc.symbolic.algebra import evaluate_text, maximum, to_sympy
from calc.symbolic.expression import Expression, Labelled, Name, Number, OverLayers, Power, Product, Sum
from calc.units import Unit
from reports.typeset import expressions

NO_MASK = "no call declares a causal mask"
SIZES = {"B": 2, "T": 5, "d": 12, "h": 3, "k": 4, "f": 48, "L": 2, "V": 17, "C": 7}

DIMS = (
    TracedDim("B", "batch size", 2),
    TracedDim("T", "sequence length", 5),
    TracedDim("d", "model width", 12, multiple_of="h"),
    TracedDim("h", "attention heads", 3),
    TracedDim("k", "head width", 4, expr="d/h", tied=True),
    TracedDim("f", "feed-forward width", 48, expr="4*d"),
    TracedDim("L", "layers", 2),
    TracedDim("V", "vocabulary size", 17),
    TracedDim("C", "maximum positions", 7),
)

PARAMETERS = "V*d + C*d + L*(4*d**2 + 2*d*f + 9*d + f) + 2*d"
FORWARD = "8*B*L*T*d**2 + 4*B*L*T**2*d + 4*B*L*T*d*f + 2*B*T*V*d"
BACKWARD = "16*B*L*T*d**2 + 8*B*L*T**2*d + 8*B*L*T*d*f + 4*B*T*V*d"
ACTIVATIONS = "40*B*L*T*d + 12*B*L*T*f + 4*B*L*T**2*h + 4*B*T*V + 16*B*T + 4*T"
AT_BACKWARD = f"16*({PARAMETERS}) + 40*B*L*T*d + 12*B*L*T*f + 4*B*L*T**2*h + 8*B*T*V + 16*B*T"
AT_STEP = f"20*({PARAMETERS}) + 16*B*T"
AT_LOSS = f"12*({PARAMETERS}) + 40*B*L*T*d + 12*B*L*T*f + 12*B*T*V + 16*B*T"


def _default(name: str) -> Dim:
    dim = next(d for d in DIMS if d.name == name)
    return Dim(dim.expr or dim.value, dim.meaning, dim.multiple_of, dim.tied)


@dataclass(frozen=True)
class Evaluator:
    """The largest of some expressions at other sizes; what follows d moves with it."""

    texts: tuple[str, ...]

    @property
    def own(self) -> Evaluator:
        return self

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        held = {d.name: d.value for d in DIMS if not d.tied and not (d.expr and "d" in given)}
        return resolve({d.name: _default(d.name) for d in DIMS}, {**held, **given})

    def holds(self, sizes: Mapping[str, int]) -> bool:
        return True

    def value(self, sizes: Mapping[str, int]) -> int:
        return max(int(evaluate_text(text, sizes)) for text in self.texts)

    def expr(self) -> Any:
        return maximum([to_sympy(text) for text in self.texts])


def _value(text: str) -> int:
    return int(evaluate_text(text, SIZES))


def _term(module_path: str, expr: str, because: str) -> QuantityTerm:
    return QuantityTerm(module_path, expr, _value(expr), because)


def _quantity(name: str, unit: Unit, meaning: str, text: str, terms: tuple[QuantityTerm, ...] = ()) -> Quantity:
    parts = tuple(QuantityPart(term.module_path, term.expr, term.value) for term in terms)
    return Quantity(name, unit, meaning, text, _value(text), terms, parts=parts, _evaluator=Evaluator((text,)))


def _product(*factors: int | str | Expression) -> Product:
    return Product(tuple(Number(f) if isinstance(f, int) else Name(f) if isinstance(f, str) else f for f in factors))


D2 = Power(Name("d"), Number(2))
T2 = Power(Name("T"), Number(2))

_LAYER_PARAMETERS = Sum((_product(4, D2), _product(2, "d", "f"), _product(9, "d"), Name("f")))
_PARAMETER_STEPS = (
    Step(
        "parameters.qkv", "parameters", StepPlace("Projection to query, key and value"), "parameter",
        before=Sum((Labelled(_product("d", _product(3, "d")), "weight"), Labelled(_product(3, "d"), "bias"))),
        after=Sum((_product(3, D2), _product(3, "d"))),
        because="a linear layer from d to 3·d holds a matrix and a bias", check=StepCheck("symbolic", "0"), value=468,
    ),
    Step(
        "parameters.layer", "parameters", StepPlace("One layer"), "sum over parts",
        before=Sum((
            Labelled(Sum((_product(3, D2), _product(3, "d"))), "attn.c_attn"), Labelled(Sum((D2, Name("d"))), "attn.c_proj"),
            Labelled(Sum((_product("d", "f"), Name("f"))), "mlp.c_fc"), Labelled(Sum((_product("f", "d"), Name("d"))), "mlp.c_proj"),
            Labelled(_product(2, _product(2, "d")), "ln_1, ln_2"),
        )),
        after=_LAYER_PARAMETERS, because="the parts of a layer add up, and like terms are collected",
        check=StepCheck("symbolic", "0"), value=1884,
    ),
    Step(
        "parameters.total", "parameters", StepPlace("All parameters"), "sum over layers",
        before=Sum((
            Labelled(_product("V", "d"), "wte"), Labelled(_product("C", "d"), "wpe"),
            Labelled(OverLayers("l", Name("L"), _LAYER_PARAMETERS), "h.*"), Labelled(_product(2, "d"), "ln_f"),
        )),
        after=Sum((_product("V", "d"), _product("C", "d"), _product("L", _LAYER_PARAMETERS), _product(2, "d"))),
        because="every layer holds the same number; the head shares its matrix with wte and counts once",
        check=StepCheck("random points", "equal at 7 points"), value=4080,
    ),
)  # fmt: skip

_FORWARD_TOTAL = Sum((
    _product(8, "B", "L", "T", D2), _product(4, "B", "L", T2, "d"), _product(4, "B", "L", "T", "d", "f"), _product(2, "B", "T", "V", "d"),
))  # fmt: skip
_FORWARD_STEPS = (
    Step(
        "forward.qkv", "flops.forward.matmul", StepPlace("x·W of h.*.attn.c_attn"), "aten.addmm.default",
        before=_product(2, _product("B", "T"), "d", _product(3, "d")), after=_product(6, "B", "T", D2),
        because="a product of (B·T, d) with (d, 3·d) takes one multiply-add, 2 FLOP, for each of its B·T·d·3·d products",
        check=StepCheck("symbolic", "0"), value=8640, operators=("aten.addmm.default",),
    ),
    Step(
        "forward.total", "flops.forward.matmul", StepPlace("Matrix multiplications of the forward"), "sum over layers",
        before=Sum((
            OverLayers("l", Name("L"), Sum((
                Labelled(_product(6, "B", "T", D2), "c_attn"), Labelled(_product(4, "B", T2, "d"), "scores and values"),
                Labelled(_product(2, "B", "T", D2), "c_proj"), Labelled(_product(4, "B", "T", "d", "f"), "mlp"),
            ))),
            Labelled(_product(2, "B", "T", "d", "V"), "lm_head"),
        )),
        after=_FORWARD_TOTAL, because="every layer runs the same products", check=StepCheck("symbolic", "0"), value=78000,
    ),
)  # fmt: skip


_PEAK_CANDIDATES = (
    (AT_BACKWARD, PeakPlace("backward", "mm", "h.1.mlp.c_proj")),
    (AT_STEP, PeakPlace("optimizer", "addcdiv_", "wte.weight")),
    (AT_LOSS, PeakPlace("forward", "log_softmax", "(loss)")),
)


def _parts(text: str) -> Mapping[str, str]:
    head, _, rest = text.partition(" + 40*")
    state = {"16": "8", "20": "8", "12": "8"}[head[:2]]
    parts = {"parameter": f"4*({PARAMETERS})", "optimizer state": f"{state}*({PARAMETERS})"}
    if head[:2] != "12":
        parts["gradient"] = f"4*({PARAMETERS})"
    parts["input"] = "16*B*T"
    if rest:
        parts["activation"] = ("40*" + rest).removesuffix(" + 16*B*T")
    else:
        parts["temporary"] = f"4*({PARAMETERS})"
    return parts


def _peak() -> Quantity:
    texts = tuple(text for text, _ in _PEAK_CANDIDATES)
    candidates = tuple(
        Candidate(text, at, _value(text), _parts(text), {role: _value(expr) for role, expr in _parts(text).items()})
        for text, at in _PEAK_CANDIDATES
    )
    candidates = tuple(sorted(candidates, key=lambda c: -c.value))
    top = candidates[0]
    terms = tuple(QuantityTerm(role, expr, top.part_values[role], f"live at {top.at}") for role, expr in top.parts.items())
    return Quantity(
        "memory.peak", Unit.BYTE, "most bytes live at one time in a training step", f"Max({', '.join(texts)})", candidates[0].value,
        terms, candidates, _evaluator=Evaluator(texts),
    )  # fmt: skip


def _peak_steps() -> tuple[Step, ...]:
    """A step for each candidate, from its parts by role, then their maximum."""
    sums, collected, steps = [], [], []
    for i, (text, at) in enumerate(_PEAK_CANDIDATES, 1):
        parts = Sum(tuple(Labelled(expressions.parse(expr), role) for role, expr in _parts(text).items()))
        sums.append(parts)
        collected.append(expressions.parse(text))
        steps.append(Step(
            f"peak.{i}", "memory.peak", at, "live storages by role", before=parts, after=collected[-1],
            because="live storages have one role each", check=StepCheck("symbolic", "0"), value=_value(text),
        ))  # fmt: skip
    steps.append(Step(
        "peak.total", "memory.peak", StepPlace("The largest of the peak candidates"), "maximum",
        before=tree.maximum(sums), after=tree.maximum(collected),
        because="live bytes rise and fall; dominated moments are left out",
        check=StepCheck("random points", "equal at 5 points"), value=89120,
    ))  # fmt: skip
    return tuple(steps)


def quantities() -> dict[str, Quantity]:
    q = _quantity
    forward = (
        _term("h.*.attn.c_attn", "6*B*L*T*d**2", "x·W"),
        _term("h.*.attn", "4*B*L*T**2*d", "attention scores query keyᵀ and the weighted sum of values"),
        _term("h.*.attn.c_proj", "2*B*L*T*d**2", "x·W"),
        _term("h.*.mlp", "4*B*L*T*d*f", "the two products of the feed-forward"),
        _term("lm_head", "2*B*T*V*d", "logits"),
    )
    backward = tuple(_term(t.module_path, f"2*({t.expr})", "gradient of the input and of the weight") for t in forward)
    parameters = (
        _term("wte", "V*d", "token embedding, shared with the head"), _term("wpe", "C*d", "position embedding"),
        _term("h.*.attn.c_attn", "L*(3*d**2 + 3*d)", "weight and bias"), _term("h.*.attn.c_proj", "L*(d**2 + d)", "weight and bias"),
        _term("h.*.mlp.c_fc", "L*(d*f + f)", "weight and bias"), _term("h.*.mlp.c_proj", "L*(d*f + d)", "weight and bias"),
        _term("h.*.ln_1, h.*.ln_2", "L*4*d", "scale and shift"), _term("ln_f", "2*d", "scale and shift"),
    )  # fmt: skip
    activations = (
        _term("h.*.ln", "40*B*L*T*d", "inputs that a backward needs"), _term("h.*.mlp", "12*B*L*T*f", "input and output of the GELU"),
        _term("h.*.attn", "4*B*L*T**2*h", "softmax output"), _term("loss", "4*B*T*V + 16*B*T + 4*T", "log-softmax, labels, positions"),
    )  # fmt: skip
    state = (
        _term("every parameter", f"8*({PARAMETERS})", "two moments in fp32"),
        _term("step counters", "4*(12*L + 4)", "one fp32 count a tensor"),
    )  # fmt: skip
    return {
        x.name: x
        for x in (
            q("parameters", Unit.ELEMENT, "elements of all parameters, each storage once", PARAMETERS, parameters),
            q("parameters.active", Unit.ELEMENT, "those that one token uses: all, as it has no experts", PARAMETERS, parameters),
            q("gradients.bytes", Unit.BYTE, "bytes of all gradients", f"4*({PARAMETERS})"),
            q("optimizer_state.bytes", Unit.BYTE, "bytes of the optimizer's state", f"8*({PARAMETERS}) + 4*(12*L + 4)", state),
            q("activations.bytes", Unit.BYTE, "bytes autograd holds when the forward returns", ACTIVATIONS, activations),
            _peak(),
            q("flops.forward.matmul", Unit.FLOP, "matrix multiplications of the forward", FORWARD, forward),
            q("flops.backward.matmul", Unit.FLOP, "matrix multiplications of the backward", BACKWARD, backward),
            Quantity("flops.forward.causal", Unit.FLOP, "forward with the mask credited", None, None, unknown=NO_MASK),
            q("flops.backward.recompute", Unit.FLOP, "products that only repeat forward work", "2*B*L*T**2*d - B*L*T**2*d"),
            q("flops.optimizer.elementwise", Unit.FLOP, "AdamW's arithmetic", f"12*({PARAMETERS})"),
            q("flops.step.total", Unit.FLOP, "all FLOPs of a step", f"{FORWARD} + {BACKWARD} + 12*({PARAMETERS})", (
                _term("forward", FORWARD, "matrix multiplications"), _term("backward", BACKWARD, "matrix multiplications"),
                _term("optimizer", f"12*({PARAMETERS})", "AdamW's arithmetic"),
            )),
        )
    }  # fmt: skip


def _output(operator: str, module_path: str) -> TensorName:
    return TensorName(operator=operator, module_path=module_path)


_SCORES = _output("softmax", "h.*.attn")


def _saved(
    tensor: TensorName, module_path: str, times: str, expr: str, operator: str, because: str, same_as: SavedBefore | None = None
) -> SavedTensor:
    name, node, value = f"aten.{operator}.default", f"{operator.title().replace('_', '')}Backward0", _value(expr)
    shape, number = ("B*T", "d"), _value(times)
    return SavedTensor(tensor, module_path, shape, "float32", times, number, expr, value, name, node, because, same_as, bool(same_as))


SAVED = (
    _saved(_output("add", "h.*"), "h.*.ln_1", "10*L", "40*B*L*T*d", "native_layer_norm", "x̂ = (x − mean)/σ is recomputed from x"),
    _saved(_output("addmm", "h.*.mlp.c_fc"), "h.*.mlp", "3*L", "12*B*L*T*f", "gelu", "dx = GELU′(x) ⊙ dy needs x"),
    _saved(_SCORES, "h.*.attn", "L", "4*B*L*T**2*h", "softmax", "dx = y ⊙ (dy − Σ y dy) needs y"),
    _saved(_SCORES, "h.*.attn", "L", "0", "bmm", "dW = xᵀ dy needs x", SavedBefore(_SCORES, "h.*.attn")),
    _saved(_output("log_softmax", "(loss)"), "(loss)", "1", "4*B*T*V + 16*B*T + 4*T", "log_softmax", "dx = dy − exp(y) Σ dy needs y"),
)


def derivation(**changes: Any) -> Derivation:
    """The sample, with any field replaced."""
    fields: dict[str, Any] = {
        "model": "tiny-gpt",
        "source": "written by hand",
        "dims": DIMS,
        "options": {"optimizer": "adamw", "precision": "fp32", "attention": "math", "mode": "train"},
        "assumptions": (
            Assumption("Eq(Mod(d, h), 0)", "each head takes an equal part of the width"),
            Assumption("T <= C", "learned positions"),
        ),
        "quantities": quantities(),
        "steps": (*_PARAMETER_STEPS, *_peak_steps(), *_FORWARD_STEPS),
        "coverage": (
            CoverageRow("aten.addmm.default", "4*L", 8, "counted", "x W + b: one multiply-add is 2 FLOP", FORWARD, _value(FORWARD)),
            CoverageRow("aten.view.default", "9*L + 3", 21, "free", "metadata only: no element is read or written", "0", 0),
        ),
        "certificates": (Certificate({"B": 3, "T": 7, "L": 4}, 10), Certificate({"B": 5, "T": 11, "L": 3}, 10)),
        "provenance": {"torch": "2.13.0", "python": "3.11", "napkin": "0.1.0"},
        "notes": ("Workspace inside an operator is not seen.",),
        "saved": SAVED,
    }
    return Derivation(**{**fields, **changes})


@dataclass(frozen=True)
class CheckReport:
    """What a check hands to a report."""

    verdicts: tuple[Verdict[int], ...]
    sizes: Mapping[str, int]
    exchanged: tuple[str, ...] = ()
    counted_with: tuple[str, ...] = ()
    because: str = ""


def checks(*extra: Verdict[int]) -> CheckReport:
    """A check that held, with one quantity measured in parts and one not measured."""
    held = (
        Verdict("parameters", 4080, 4080, "sum of numel over named_parameters", "exact"),
        Verdict("flops.forward.matmul", 78000, 78000, "FlopCounterMode, math attention", "exact"),
        Verdict("flops.backward.matmul", 156000, 154800, "FlopCounterMode, math attention", "in parts", expected=1200),
        Verdict("memory.peak", 89120, None, "none", "not measured", because="no CUDA device"),
    )
    return CheckReport((*held, *extra), SIZES)
