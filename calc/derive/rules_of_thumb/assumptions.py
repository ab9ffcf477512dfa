"""Which assumptions of a rule of thumb a step meets: each is judged by what the derivation of the step says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from calc.derive.result import Derivation
from calc.derive.rules_of_thumb.differences import ADDED, DROPPED, NEAR, NOT_COMPUTED, OTHERWISE, REUSED, Difference
from calc.symbolic.exact import evaluate_text
from calc.symbolic.parser import free_names
from calc.units import ITEM_SIZE


@dataclass(frozen=True, slots=True)
class ComparedStep:
    """A step that a rule is compared with. ``differences`` are all terms of rule − exact; ``None`` if they are unknown."""

    derivation: Derivation
    exact: int
    differences: Sequence[Difference] | None


@dataclass(frozen=True, slots=True)
class Judgment:
    """Whether a step meets an assumption; ``None``: it cannot be judged. ``effect``: rule − exact caused by it, relative to exact."""

    met: bool | None
    because: str
    effect: Fraction | None = None


@dataclass(frozen=True, slots=True)
class RuleAssumption:
    """An assumption of a rule of thumb in words, and the function that judges a step by it."""

    statement: str
    judge: Callable[[ComparedStep], Judgment]


@dataclass(frozen=True, slots=True)
class JudgedAssumption:
    """An assumption of a rule of thumb and the judgment of one step."""

    statement: str
    judgment: Judgment


# -- assumptions on terms ------------------------------------------------------------------------------------------------


def once_per_token(step: ComparedStep) -> Judgment:
    """Every parameter multiplies every token once: no term is counted for a parameter that no matmul uses, or uses at another rate."""
    return _no_difference(step, ADDED, OTHERWISE, REUSED)


def no_other_terms(step: ComparedStep) -> Judgment:
    """The exact count has no term that the rule lacks."""
    return _no_difference(step, DROPPED)


def all_gradients(step: ComparedStep) -> Judgment:
    """Autograd computes the gradient of every matmul's two factors."""
    return _no_difference(step, NOT_COMPUTED)


def exactly(step: ComparedStep) -> Judgment:
    """Rule and exact count have the same terms."""
    return _no_difference(step, ADDED, DROPPED, OTHERWISE, REUSED, NOT_COMPUTED)


def small_attention(step: ComparedStep) -> Judgment:
    """The terms that the rule lacks are at most 5 % of the exact count."""
    judgment = no_other_terms(step)
    return Judgment(abs(judgment.effect) <= NEAR, judgment.because, judgment.effect) if judgment.effect is not None else judgment


def _no_difference(step: ComparedStep, *kinds: str) -> Judgment:
    if step.differences is None:
        return Judgment(None, "the difference between rule and exact count is not a polynomial, so it is not split")
    these = [d for d in step.differences if d.kind in kinds]
    if not these:
        return Judgment(True, "")
    largest = max(these, key=lambda d: abs(d.value))
    at = f", at {largest.module_paths[0]}" if largest.module_paths and largest.kind not in (ADDED, NOT_COMPUTED) else ""
    others = len(these) - 1
    more = f"; {others} more {'terms are' if others > 1 else 'term is'} listed below" if others else ""
    return Judgment(False, f"{largest.because}{at}{more}", Fraction(sum(d.value for d in these), step.exact))


# -- assumptions on the step -----------------------------------------------------------------------------------------------


def two_bytes(step: ComparedStep) -> Judgment:
    """No floating-point tensor that is saved has more than 2 bytes an element."""
    terms = step.derivation["activations.bytes"].terms
    formats = [label.dtype for term in terms for label, _ in term.addends]
    if not formats or not set(formats) <= set(ITEM_SIZE):
        return Judgment(None, "the derivation does not name the formats of all saved tensors")
    wide = {name: ITEM_SIZE[name] for name in dict.fromkeys(formats) if name.startswith("float") and ITEM_SIZE[name] > 2}
    if not wide:
        return Judgment(True, "")
    saved = [(wide[label.dtype], expr) for term in terms for label, expr in term.addends if label.dtype in wide]
    more = sum(evaluate_text(expr, step.derivation.sizes) * Fraction(size - 2, size) for size, expr in saved)
    because = "; ".join(f"{name} tensors are saved, {size} bytes an element" for name, size in wide.items())
    return Judgment(False, f"{because}: with 2 bytes each, {int(more):,} bytes fewer", _share(-more, step))


# Korthikanti et al. 2022, section 4.1, says of which tensors 34·s·b·h and 5·a·s²·b are, in each layer: 16·s·b·h are the input of GeLU and
# that of the second linear layer, 2·f elements of 2 bytes each; 2·s·b·h are the masks of the dropouts on both outputs. Of 5·a·s²·b, 2 are
# the softmax, 1 is the mask of its dropout and 2 are the result of that.


def dropout(step: ComparedStep) -> Judgment:
    """Some operator of the step draws a dropout mask. The bytes on scores that are not stored are not those of a mask."""
    if any("dropout" in row.operator or "bernoulli" in row.operator for row in step.derivation.coverage):
        return Judgment(True, "")
    if not stored_scores(step).met:
        return Judgment(False, _NO_MASKS, _share(_in_layers("2*B*T*d", step), step))
    because = f"{_NO_MASKS}, nor its 3·a·s²·b of a mask and a result on the scores"
    return Judgment(False, because, _share(_in_layers("2*B*T*d + 3*h*T**2*B", step), step))


_NO_MASKS = "no dropout operator runs: no layer saves the rule's 2·s·b·h bytes of masks"


def four_times_width(step: ComparedStep) -> Judgment:
    """f = 4·d."""
    sizes = step.derivation.sizes
    if "f" not in sizes:
        return Judgment(None, "this model has no f")
    if sizes["f"] == 4 * sizes["d"]:
        return Judgment(True, "")
    because = f"f = {sizes['f']:,} and d = {sizes['d']:,}: the rule's 16·s·b·h bytes of the feed-forward are 4·s·b·f in each layer"
    return Judgment(False, because, _share(_in_layers("B*T*(16*d - 4*f)", step), step))


def stored_scores(step: ComparedStep) -> Judgment:
    """Some saved tensor has two axes of length T."""
    if not step.derivation.saved:
        return Judgment(None, "the derivation does not list the saved tensors")
    if any(tensor.shape.count("T") > 1 for tensor in step.derivation.saved):
        return Judgment(True, "")
    because = (
        "no saved tensor has two axes of length T: attention is fused, and recomputes the scores, the rule's 5·a·s²·b bytes in each layer"
    )
    return Judgment(False, because, _share(_in_layers("5*h*T**2*B", step), step))


def _in_layers(nbytes: str, step: ComparedStep) -> Fraction:
    """Bytes in all layers."""
    return Fraction(evaluate_text(f"L*({nbytes})", step.derivation.sizes))


def _share(error: Fraction | int, step: ComparedStep) -> Fraction | None:
    """An error relative to the exact count."""
    return Fraction(error) / step.exact if step.exact else None


def only_layers(step: ComparedStep) -> Judgment:
    """All of the exact count is in terms with L."""
    terms = [t for t in step.derivation["activations.bytes"].terms if "L" not in free_names(t.expr) and t.value]
    where = ", ".join(dict.fromkeys(t.module_path for t in sorted(terms, key=lambda t: -t.value)[:3]))
    effect = Fraction(-sum(t.value for t in terms), step.exact)
    return Judgment(not terms, f"tensors are saved outside the layers, at {where}" if terms else "", effect if terms else None)


_ADAM = ((2, 2, 12), (4, 4, 8))


def adam_bytes(step: ComparedStep) -> Judgment:
    """Weights, gradients and optimizer state take 2 + 2 + 12 or 4 + 4 + 8 bytes per parameter, but for step counters."""
    count = step.derivation["parameters"].value or 0
    gradients, state = (step.derivation[name].value or 0 for name in ("gradients.bytes", "optimizer_state.bytes"))
    each = [Fraction(nbytes, count) for nbytes in (step.exact - gradients - state, gradients, state)]
    met = any(all(abs(x - y) <= Fraction(y, 100) for x, y in zip(each, pattern, strict=True)) for pattern in _ADAM)
    written = " + ".join(f"{float(x):.3g}" for x in each)
    if met:
        return Judgment(True, "")
    because = f"weights, gradients and optimizer state take {written} bytes per parameter"
    return Judgment(False, because, _share(16 * count - step.exact, step))


def adagrad(step: ComparedStep) -> Judgment:
    """The optimizer is AdaGrad, which has one value for each parameter; the error of another is that of values counted at another rate."""
    name = step.derivation.options.get("optimizer", "")
    if name == "adagrad":
        return Judgment(True, "")
    because = f"the optimizer is {name}" if name else "no optimizer runs"
    return Judgment(False, because, _no_difference(step, ADDED, OTHERWISE, REUSED).effect)
