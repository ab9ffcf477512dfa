"""``measure``: every quantity of a training step, each by the one instrument that sees it, in one real run of two steps.

All instruments are attached to the second step; the first has only those of its own peak and data-dependent sizes. They do not disturb each
other: none keeps a tensor alive, and what one computes for its count (a reference decomposition, attention's matmuls) no other sees.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import torch

from calc.errors import BadInputError, MeasurementError
from calc.graph.exchanges import Differences, ExchangeDifference
from calc.measure import recompute
from calc.measure.attention import AllGradients
from calc.measure.flops import MatmulCounter
from calc.measure.free_memory import require_free_memory
from calc.measure.measurement import Measurement, Reading
from calc.measure.observer import fast_path, fused_attention
from calc.measure.state import measure_checkpoint
from calc.measure.steps import two_steps
from calc.measure.training import SEED, Training, training
from calc.options import Options
from calc.platform.progress import Progress
from calc.platform.torch_private import torch_version
from calc.spec import Spec

RECOMPUTE = "flops.backward.recompute"
Start = Callable[..., AbstractContextManager[Training]]
"""Context with a new training of the measured model, for options."""


def measure(
    spec: Spec,
    sizes: Mapping[str, int],
    *,
    options: Options | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
    seed: int = SEED,
) -> Measurement:
    """Every quantity of the training step of ``spec`` at ``sizes``, measured, with weights and inputs drawn from ``seed``. Raises
    ``BadInputError`` or ``MeasurementError``."""
    options = options or Options()
    require_device(device)
    sizes = _all_sizes(spec, sizes)
    require_free_memory(spec, sizes, options.trains)
    tell = progress or (lambda text: None)

    tell("building the model")
    start = functools.partial(training, spec, sizes, device=device, seed=seed)
    with start(options) as run:
        steps = two_steps(run, tell)
        tell("writing a checkpoint and reading it back")
        readings = {**steps.readings, "checkpoint.bytes": measure_checkpoint(run)}
        has_lstm = any(isinstance(part, torch.nn.LSTM) for part in run.module.modules())

    matmuls, fused = steps.matmuls, fused_attention(steps.operators)
    hidden = sorted(set(fused) - matmuls.attention.names)
    if hidden:
        tell("matmul FLOPs, operator by operator")
        matmuls = _unfused(start, options)
    return Measurement(
        model=spec.name,
        sizes=sizes,
        options=options.to_json(),
        readings={**readings, **_recompute(matmuls, fused, hidden), **matmuls.readings(fused), **steps.counted},
        operators=tuple(sorted(steps.operators)),
        unbacked_sizes=steps.unbacked_sizes,
        unbacked_first_step=steps.unbacked_first_step,
        recompute=matmuls.recompute or 0,
        exchanged=_exchanged(start, options, steps.operators, readings if has_lstm else None, tell),
        provenance=_provenance(device, seed),
    )


def _unfused(start: Start, options: Options) -> MatmulCounter:
    """The counter of the second of two steps whose attention runs on the math backend, without torch's fast path."""
    with _no_fast_path(), AllGradients(), start(replace(options, attention="math")) as run:
        run.step()
        counter = MatmulCounter(run.phases)
        run.step(counter.counting)
    return counter


def _recompute(matmuls: MatmulCounter, fused: Iterable[str], hidden: Sequence[str]) -> dict[str, Reading]:
    """``flops.backward.recompute``; empty if the backward recomputes nothing but queries times keys inside fused attention.
    ``hidden``: kernels whose recomputation is not known."""
    flops = matmuls.recompute
    if flops is None:
        return {}
    if hidden:
        return {RECOMPUTE: Reading(None, recompute.WITH_FUSED, f"the recomputation inside {', '.join(hidden)} is not known")}
    if not fused:
        return {RECOMPUTE: Reading(flops, recompute.INSTRUMENT)}
    return {RECOMPUTE: Reading(flops + matmuls.attention.recomputed, recompute.WITH_FUSED, recompute.INSIDE, proxy=True)}


# Part of the name of the oneDNN operator that runs an LSTM by default on CPU; a default step shows whether it is used.
_ONEDNN_LAYER = "mkldnn_rnn_layer"


def _exchanged(
    start: Start, options: Options, operators: Collection[str], with_lstm: Mapping[str, Reading] | None, tell: Progress
) -> Differences:
    """Kernels replaced in ``measure``'s runs, with the saved and peak bytes of the default step for those that change them.
    ``with_lstm``: the readings of a model that has an LSTM."""
    differences: dict[str, tuple[ExchangeDifference, ...]] = {}
    if options.attention != "math" and any("scaled_dot_product" in name for name in fused_attention(operators)):
        differences["attention"] = ()
    if fast_path(operators):
        differences["fast path"] = ()
    if with_lstm is not None:
        tell("the steps as torch runs them by default")
        with start(options, by_default=True) as run:
            steps = two_steps(run, lambda _: None)
        if any(_ONEDNN_LAYER in name for name in steps.operators):
            differences["lstm"] = tuple(_differences(steps.readings, with_lstm))
    return differences


def _differences(default: Mapping[str, Reading], exchanged: Mapping[str, Reading]) -> Iterator[ExchangeDifference]:
    for name in ("activations.bytes", "memory.peak"):
        if name in default and (default_value := default[name].value) is not None and (value := exchanged[name].value) is not None:
            yield ExchangeDifference(name, default_value, value)


def require_device(device: str) -> None:
    """Raises ``BadInputError`` for an unknown device and ``MeasurementError`` for a missing one."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise BadInputError(f"unknown device {device[:40]!r}: use cpu or cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        raise MeasurementError("there is no CUDA device here: measure on cpu, or on a machine and a torch build with CUDA")


def _all_sizes(spec: Spec, sizes: Mapping[str, int]) -> dict[str, int]:
    """Every dimension's size. Values given for tied dimensions are ignored: they follow from the others."""
    dims = spec.dimensions
    return spec.sizes({name: value for name, value in sizes.items() if name not in dims or not dims[name].tied})


@contextmanager
def _no_fast_path() -> Iterator[None]:
    """Context without torch's fast path: encoder layers in evaluation run operator by operator, as in training."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _provenance(device: str, seed: int) -> dict[str, str]:
    machine = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine()
    return {
        **torch_version(),
        "python": platform.python_version(),
        "platform": platform.system(),
        "device": f"{device} ({machine})",
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "seed": str(seed),
    }
