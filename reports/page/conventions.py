"""The conventions every report counts by, what each means for a reader, and what is never covered. Words only."""

from __future__ import annotations

from collections.abc import Mapping

from calc.options import TRAIN

CONVENTIONS: tuple[tuple[str, str, str], ...] = (
    (
        "One multiply-add is 2 FLOP.",
        "FLOP is an amount of work, FLOP/s a rate; hardware peaks are quoted in this convention.",
        "Counted as MACs, every matrix-product number here halves.",
    ),
    (
        "The step is forward, backward, optimizer step, zero_grad(set_to_none=True); peak memory is that of the second such step.",
        "From the second step on the optimizer's state exists, and every further step is alike.",
        "Gradients kept between steps, or several forwards for one optimizer step, raise the peak.",
    ),
    (
        "A storage counts once and whole, from the operator that first shows it until its last reference goes.",
        "That is what an allocator must hold; views share the storage of what they view.",
        "An allocator's rounding and fragmentation come on top.",
    ),
    (
        "The optimizer runs its per-tensor implementation.",
        "It is what the class does by default on a CPU; the fused and foreach ones hold other temporaries.",
        "On CUDA the default differs: the optimizer's share of the peak and its FLOPs move, its state does not.",
    ),
    (
        "Attention products count in full, masked or not.",
        "A mask is credited only in the quantities named causal, and only where the model's call declares it.",
        "A kernel that skips masked blocks does up to half of the attention products.",
    ),
)

_NONE_BY_DATA = (
    "Values do not depend on data.",
    "Sizes alone decide what a step of this model runs.",
    "A model that branches on its data is refused rather than averaged.",
)
_SOME_BY_DATA = (
    "A size that data decide is a symbol of its own: n1, n2, …",
    "How many elements a mask chooses is known only when a step runs; its symbol stands for each time that its line is passed.",
    "Where the number differs from time to time, sums are those of the mean, and the peak is that of equal numbers.",
)

# What stands in place of the step and its optimizer where nothing is trained.
_FORWARD_ALONE = (
    "The step is one forward and nothing else; peak memory is that of the second such forward.",
    "Nothing is kept for a backward, and no optimizer runs.",
    "Several forwards at once, or results kept between them, raise the peak.",
)
_TRAINING_ONLY = ("The step is forward", "The optimizer runs")

STEPS: Mapping[str, str] = {
    TRAIN: "one training step",
    "eval": "one forward in evaluation mode",
    "infer": "one forward in inference mode",
}


# What stands in place of the per-tensor implementation, where another is asked for.
_IMPLEMENTED: Mapping[str, tuple[str, str, str]] = {
    "foreach": (
        "The optimizer runs its foreach implementation: each operation on the list of all parameters.",
        "Its temporaries are as many and as large as the parameters, at once.",
        "The per-tensor one holds those of one parameter at a time; the state is the same.",
    ),
    "fused": (
        "The optimizer runs its fused implementation: one operator for all parameters.",
        "It holds no temporary that another operator sees; what it computes is counted as the update is documented.",
        "The per-tensor one holds temporaries of one parameter at a time; the state is the same.",
    ),
}


def conventions(mode: str, decided: bool = False, implementation: str = "loop") -> tuple[tuple[str, str, str], ...]:
    """The conventions that say something about a step in ``mode``, of which data decide some sizes or none."""
    last = _SOME_BY_DATA if decided else _NONE_BY_DATA
    if mode == TRAIN:
        stated = _IMPLEMENTED.get(implementation)
        return (*(stated if stated and c[0].startswith("The optimizer runs") else c for c in CONVENTIONS), last)
    return (_FORWARD_ALONE, *(c for c in CONVENTIONS if not c[0].startswith(_TRAINING_ONLY)), last)


NOT_COVERED: tuple[str, ...] = (
    "Time: no quantity here is a duration or a rate; recorded measurements of real runs stand apart.",
    "Workspace that an operator allocates and frees inside itself, and libraries' own buffers.",
    "An allocator's rounding, caching and fragmentation.",
    "More than one process: no communication, sharding or offloading.",
    "Kernels of other devices, where they differ from those recorded on the CPU.",
)

REFUSED = "Sizes that break it are refused: the model cannot run at them."
GIVEN = "The closed forms hold as they are: give the number that comes out."
OTHERWISE = "At sizes that break it, the closed forms need not hold: derive again at such sizes."
