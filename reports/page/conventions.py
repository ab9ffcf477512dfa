"""The counting conventions of every report, why each holds, and what no report covers. Text only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from calc.derive.quantities import has_attention
from calc.options import TRAIN, by_cuda, trains

if TYPE_CHECKING:  # stored answers, which print some of these, are cold without it
    from calc.derive.result import Derivation

Convention = tuple[str, str, str]  # what is counted how, why, and what changes otherwise

_MULTIPLY_ADD = (
    "One multiply-add is 2 FLOP.",
    "FLOP is an amount, FLOP/s a rate. Vendors quote peak rates in this convention.",
    "Counted in MACs, every matmul number here is half as large.",
)
_STORAGE = (
    "A storage counts once, at its full size, from the operator that allocates it until its last reference is gone.",
    "An allocator must hold it that long. Views share the storage of their base.",
    "An allocator's rounding and fragmentation come on top.",
)
_ATTENTION = (
    "Attention matmuls count in full, masked or not.",
    "Only the quantities named causal subtract masked positions, and only if the model's attention call declares the mask.",
    "With a square causal mask, a kernel that skips masked blocks still does at least half of them.",
)

_ON_CUDA = (
    "Operators, their dtypes and the kernels of attention are those that torch runs on a CUDA device.",
    "Autocast casts other operators there than on a CPU, RMS norm and dropout are one kernel each, and fp32 attention with fewer key/value"
    " heads than query heads has no fused kernel.",
    "On a CPU the same step may run other operators and has another peak. Attention's operators keep the names of the CPU's kernels.",
)

_NONE_BY_DATA = (
    "Nothing depends on the values of the data.",
    "The sizes alone determine which operators a step of this model runs.",
    "Napkin refuses a model that branches on its data; it never assumes an average.",
)
_SOME_BY_DATA = (
    "Each data-dependent (unbacked) size is a symbol of its own: n1, n2, …",
    "How many elements a mask selects is known only when a step runs. If a line runs several times, its symbol is the same each time.",
    "If the counts differ, sums hold for their mean; the peak holds only for equal counts.",
)


def _forward_alone(predicts: bool) -> Convention:
    """That of a step without training, in place of the step and its optimizer."""
    ends = "to the model's prediction, without a loss" if predicts else "and nothing else, its loss included"
    return (
        f"The step is one forward {ends}; peak memory is that of the second such forward.",
        "No tensor is saved for backward, and no optimizer runs.",
        "Several forward passes at once, or results kept between them, raise the peak.",
    )


STEPS: Mapping[str, str] = {
    TRAIN: "one training step",
    "eval": "one forward in evaluation mode",
    "infer": "one forward in inference mode",
}


_IMPLEMENTED: Mapping[str, Convention] = {
    "loop": (
        "The optimizer runs its per-tensor implementation.",
        "It is the default on a CPU. The fused and foreach implementations have other temporaries.",
        "On CUDA the default differs: the optimizer's temporaries and FLOPs change, its state does not.",
    ),
    "foreach": (
        "The optimizer runs its foreach implementation: each operation on the list of all parameters.",
        "Its temporaries have the size of all parameters together, at once.",
        "The per-tensor implementation has temporaries for one parameter at a time; the state is the same.",
    ),
    "fused": (
        "The optimizer runs its fused implementation: one operator for all parameters.",
        "It allocates no temporaries outside the operator. Its FLOPs are those of the documented update rule.",
        "The per-tensor implementation has temporaries for one parameter at a time; the state is the same.",
    ),
}


def conventions(
    options: Mapping[str, str], *, data_dependent: bool = False, attention: bool = True, predicts: bool = False
) -> tuple[Convention, ...]:
    """The conventions of a step with these options: one with data-dependent sizes or not, with attention or not; ``predicts``: one that
    runs the model's prediction in place of the loss."""
    by_data = _SOME_BY_DATA if data_dependent else _NONE_BY_DATA
    of_kernels = (*((_ATTENTION,) if attention else ()), *((_ON_CUDA,) if by_cuda(options) else ()))
    if not trains(options):
        return (_MULTIPLY_ADD, _forward_alone(predicts), _STORAGE, *of_kernels, by_data)
    implementation = _IMPLEMENTED[options.get("implementation", "loop")]
    return (_MULTIPLY_ADD, _training_step(options), _STORAGE, implementation, *of_kernels, by_data)


def _training_step(options: Mapping[str, str]) -> Convention:
    passes = options.get("accumulation", "1")
    run = "forward, backward" if passes == "1" else f"forward and backward of {passes} micro-batches"
    freed = options.get("zero_grad", "none") == "none"
    return (
        f"The step is {run}, optimizer step, zero_grad(set_to_none={freed}); peak memory is that of the second such step.",
        "The optimizer allocates its state in the first step; all later steps are alike.",
        f"{'Keeping' if freed else 'Freeing'} gradients between steps, or another number of micro-batches, can change the peak.",
    )


def runs_prediction(derivation: Derivation) -> bool:
    """Whether the step runs the model's prediction in place of the loss."""
    return derivation.spec is not None and derivation.spec.predict_in(derivation.options.get("mode", TRAIN)) is not None


def names_outside_modules(derivation: Derivation) -> str:
    """What names in parentheses mean that stand for a module path in this step."""
    meanings = ["(model) is the model outside its submodules"]
    meanings += [] if runs_prediction(derivation) else ["(loss) the loss function"]
    if trains(derivation.options):
        meanings.append("(optimizer) what the optimizer does for no single parameter, such as counting steps")
    *before, last = meanings
    return f"Names in parentheses are not modules: {', '.join(before)}{', and ' if before else ''}{last}."


def attends(derivation: Derivation) -> bool:
    """Whether the step has attention."""
    return has_attention(part.part for quantity in derivation.quantities.values() for part in quantity.parts)


def applied_options(derivation: Derivation) -> dict[str, str]:
    """The options by which the step runs."""
    return without_idle(derivation.options, any("attention" in row.operator for row in derivation.ledger.rows), attends(derivation))


def without_idle(options: Mapping[str, str], kernel: bool, attention: bool) -> dict[str, str]:
    """``options`` without that of attention where the step has none; nor has one whose model multiplies query keyᵀ itself a
    fused ``kernel``."""
    applies = {"fused": kernel, "math": attention}
    return {name: value for name, value in options.items() if name != "attention" or applies[value]}


def options_in_words(derivation: Derivation) -> str:
    """How the step runs."""
    return ", ".join(f"{name} {value}" for name, value in applied_options(derivation).items())


NOT_COVERED: tuple[str, ...] = (
    "Durations: Napkin derives FLOPs and bytes. A time here is a roofline bound, assumes a stated MFU or was recorded, and says which.",
    "Workspace that an operator allocates and frees internally, and buffers of libraries.",
    "Rounding, caching and fragmentation of the allocator.",
    "Several processes: communication, sharding, offloading.",
    "Kernels of other devices, where they differ from those traced: by default a CPU's, with --kernels cuda a CUDA device's.",
)

REFUSED = "The model cannot run at such sizes: Napkin refuses them."
GIVEN = "The closed forms still hold: set this size to the number that comes out."
OWN_CASE = "Nothing to do: Napkin uses the closed forms of each case at its own sizes."
TRACED_AGAIN = "The step runs other operators there: Napkin traces it at those sizes, or refuses them."
OTHERWISE = "The closed forms need not hold: derive at those sizes."
