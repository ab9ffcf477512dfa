"""The counting conventions of every report, why each holds, and what no report covers. Text only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from calc.options import TRAIN

CONVENTIONS: tuple[tuple[str, str, str], ...] = (
    (
        "One multiply-add is 2 FLOP.",
        "FLOP is an amount, FLOP/s a rate. Vendors quote peak rates in this convention.",
        "Counted in MACs, every matmul number here is half as large.",
    ),
    (
        "The step is forward, backward, optimizer step, zero_grad(set_to_none=True); peak memory is that of the second such step.",
        "The optimizer allocates its state in the first step; all later steps are alike.",
        "Keeping gradients between steps, or several forward passes per optimizer step, raises the peak.",
    ),
    (
        "A storage counts once, at its full size, from the operator that allocates it until its last reference is gone.",
        "An allocator must hold it that long. Views share the storage of their base.",
        "An allocator's rounding and fragmentation come on top.",
    ),
    (
        "The optimizer runs its per-tensor implementation.",
        "It is the default on a CPU. The fused and foreach implementations have other temporaries.",
        "On CUDA the default differs: the optimizer's temporaries and FLOPs change, its state does not.",
    ),
    (
        "Attention matmuls count in full, masked or not.",
        "Only the quantities named causal subtract masked positions, and only if the model's attention call declares the mask.",
        "With a square causal mask, a kernel that skips masked blocks still does at least half of them.",
    ),
)

_NONE_BY_DATA = (
    "Nothing depends on the values of the data.",
    "The sizes alone determine which operators a step of this model runs.",
    "Napkin refuses a model that branches on its data; it never averages.",
)
_SOME_BY_DATA = (
    "Each data-dependent (unbacked) size is a symbol of its own: n1, n2, …",
    "How many elements a mask selects is known only when a step runs. If a line runs several times, its symbol is the same each time.",
    "If the counts differ, sums hold for their mean; the peak holds only for equal counts.",
)

# For a step without training, in place of the step and its optimizer.
_FORWARD_ALONE = (
    "The step is one forward and nothing else; peak memory is that of the second such forward.",
    "No tensor is saved for backward, and no optimizer runs.",
    "Several forward passes at once, or results kept between them, raise the peak.",
)
_TRAINING_ONLY = ("The step is forward", "The optimizer runs")

STEPS: Mapping[str, str] = {
    TRAIN: "one training step",
    "eval": "one forward in evaluation mode",
    "infer": "one forward in inference mode",
}


# For another optimizer implementation, in place of the per-tensor one.
_IMPLEMENTED: Mapping[str, tuple[str, str, str]] = {
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


def has_attention(operators: Iterable[str]) -> bool:
    """Whether a step with these operators may have attention matmuls: it has an attention operator, or a softmax of scores."""
    return any("attention" in name or ("softmax" in name and "log_softmax" not in name) for name in operators)


def conventions(
    mode: str, data_dependent: bool = False, implementation: str = "loop", attention: bool = True
) -> tuple[tuple[str, str, str], ...]:
    """(convention, reason, what changes otherwise) for a step in ``mode``: one with data-dependent sizes or not, with attention or not."""
    last = _SOME_BY_DATA if data_dependent else _NONE_BY_DATA
    general = [c for c in CONVENTIONS if attention or not c[0].startswith("Attention")]
    if mode == TRAIN:
        optimizer = _IMPLEMENTED.get(implementation)
        return (*(optimizer if optimizer and c[0].startswith("The optimizer runs") else c for c in general), last)
    return (_FORWARD_ALONE, *(c for c in general if not c[0].startswith(_TRAINING_ONLY)), last)


NOT_COVERED: tuple[str, ...] = (
    "Durations: Napkin derives FLOPs and bytes. A time here is a roofline bound, assumes a stated MFU or was recorded, and says which.",
    "Workspace that an operator allocates and frees internally, and buffers of libraries.",
    "Rounding, caching and fragmentation of the allocator.",
    "Several processes: communication, sharding, offloading.",
    "Kernels of other devices, where they differ from those traced on the CPU.",
)

REFUSED = "The model cannot run at such sizes: Napkin refuses them."
GIVEN = "The closed forms still hold: set this size to the number that comes out."
OWN_CASE = "Nothing to do: Napkin uses the closed forms of each case at its own sizes."
TRACED_AGAIN = "The step runs other operators there: Napkin traces it at those sizes, or refuses them."
OTHERWISE = "The closed forms need not hold: derive at those sizes."
