"""``measure``: every quantity of a training step, each from a real run with the one instrument that sees it.

Instruments disturb each other (a hook keeps tensors alive that a plain run frees), so each has its own run: a fresh module from
the same seed, two steps, the second of which is measured.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import torch

from calc.errors import BadInputError, MeasurementError
from calc.graph.exchanges import Differences, ExchangeDifference
from calc.measure.all_gradients import AllGradients
from calc.measure.flops import MAPPING, measure_flops
from calc.measure.free_memory import require_free_memory
from calc.measure.measurement import Measurement, Reading
from calc.measure.memory import measure_memory
from calc.measure.observer import Observer, fast_path, fused_attention
from calc.measure.recompute import measure_recompute
from calc.measure.reference import ReferenceCounter
from calc.measure.saved import measure_saved
from calc.measure.state import measure_checkpoint, measure_gradients, measure_optimizer_state, measure_parameters, measure_weights
from calc.measure.training import SEED, Training, training
from calc.options import Options
from calc.platform.torch_private import torch_version
from calc.spec import Spec

Progress = Callable[[str], None]

ELEMENTWISE = "torch's reference decompositions, run and counted"
RECOMPUTE = "flops.backward.recompute"
BYTES_MOVED = "distinct elements of the real tensors read and written"


def measure(
    spec: Spec, sizes: Mapping[str, int], *, options: Options | None = None, device: str = "cpu", progress: Progress | None = None
) -> Measurement:
    """Every quantity of the training step of ``spec`` at ``sizes``, measured. Raises ``BadInputError`` or ``MeasurementError``."""
    options = options or Options()
    require_device(device)
    sizes = _all_sizes(spec, sizes)
    require_free_memory(spec, sizes, options.trains)
    tell = progress or (lambda text: None)

    tell("live bytes of two steps")
    with training(spec, sizes, options, device) as run:
        readings = measure_memory(run)

    tell("saved tensors, gradients, optimizer state, checkpoint")
    with training(spec, sizes, options, device) as run:
        first, observer, state = _measure_state(run)

    tell("matmul FLOPs")
    fused = fused_attention(observer.names)
    with (
        _no_fast_path(),
        AllGradients() if fused else nullcontext(),
        training(spec, sizes, replace(options, attention="math"), device) as run,
    ):
        run.step()
        flops = measure_flops(run, fused)
    recompute = flops.get(RECOMPUTE)
    if fused and recompute is not None:
        with training(spec, sizes, options, device) as run:
            run.step()
            flops[RECOMPUTE] = measure_recompute(run, MAPPING, fused)

    tell("elementwise FLOPs and bytes moved")
    with training(spec, sizes, options, device) as run:
        run.step()
        counted = _measure_reference(run, readings["memory.peak"])

    return Measurement(
        model=spec.name,
        sizes=sizes,
        options=options.to_json(),
        readings={**state, **readings, **flops, **counted},
        operators=tuple(sorted(observer.names)),
        unbacked_sizes={place: tuple(sizes) for place, sizes in observer.unbacked_sizes.items()},
        unbacked_first_step={place: tuple(sizes) for place, sizes in first.unbacked_sizes.items()},
        recompute=(recompute.value or 0) if recompute is not None else 0,
        exchanged=_exchanged(spec, sizes, options, device, observer.names, {**state, **readings}, bool(fused), tell),
        provenance=_provenance(device),
    )


# Part of the name of the oneDNN operator that runs an LSTM by default on CPU; a default step shows whether it is used.
_ONEDNN_LAYER = "mkldnn_rnn_layer"


def _exchanged(
    spec: Spec,
    sizes: Mapping[str, int],
    options: Options,
    device: str,
    operators: Iterable[str],
    here: Mapping[str, Reading],
    fused: bool,
    tell: Progress,
) -> Differences:
    """Kernels replaced in ``measure``'s runs, with the saved and peak bytes of the default step for those that change them."""
    differences: dict[str, tuple[ExchangeDifference, ...]] = {}
    if fused and options.attention != "math" and any("scaled_dot_product" in name for name in operators):
        differences["attention"] = ()
    if fast_path(operators):
        differences["fast path"] = ()
    with training(spec, sizes, options, device, by_default=True) as run, Observer() as observer:
        if not any(isinstance(part, torch.nn.LSTM) for part in run.module.modules()):
            return differences
        run.step()
    if any(_ONEDNN_LAYER in name for name in observer.names):
        tell("the step as torch runs it by default")
        differences["lstm"] = _by_default(spec, sizes, options, device, here)
    return differences


def _by_default(
    spec: Spec, sizes: Mapping[str, int], options: Options, device: str, here: Mapping[str, Reading]
) -> tuple[ExchangeDifference, ...]:
    readings: dict[str, Reading] = {}
    with training(spec, sizes, options, device, by_default=True) as run:
        readings |= measure_memory(run)
    if "activations.bytes" in here:
        with training(spec, sizes, options, device, by_default=True) as run:
            run.step()
            readings["activations.bytes"] = measure_saved(run)
    pairs = [(name, readings[name].value, here[name].value) for name in ("activations.bytes", "memory.peak") if name in readings]
    return tuple(ExchangeDifference(name, default, value) for name, default, value in pairs if default is not None and value is not None)


def require_device(device: str) -> None:
    """Raises ``BadInputError`` for an unknown device and ``MeasurementError`` for a missing one."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise BadInputError(f"unknown device {device[:40]!r}: known are cpu, cuda")
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


def _measure_state(run: Training) -> tuple[Observer, Observer, dict[str, Reading]]:
    """The observers of the first and second step, and readings of the second: saved tensors, gradients, optimizer state and
    checkpoint."""
    readings = {"parameters": measure_parameters(run), **measure_weights(run)}
    with Observer() as first:
        run.step()
    if run.optimizer is None:
        with Observer() as observer:
            run.step()
        return first, observer, {**readings, "checkpoint.bytes": measure_checkpoint(run)}
    with Observer() as observer:
        saved = measure_saved(run)
        readings["gradients.bytes"] = measure_gradients(run)
        run.update()
    run.clear()
    readings["optimizer_state.bytes"] = measure_optimizer_state(run)
    readings["activations.bytes"] = saved
    readings["checkpoint.bytes"] = measure_checkpoint(run)
    return first, observer, readings


def _measure_reference(run: Training, memory: Reading) -> dict[str, Reading]:
    """Elementwise FLOPs and bytes moved of the next step, by phase; not measured if ``memory`` has no value (unseen storages)."""
    if memory.value is None:
        lacking = {f"flops.{phase}.elementwise": Reading(None, ELEMENTWISE, memory.because) for phase in run.phases}
        return {**lacking, **{f"bytes_moved.{phase}": Reading(None, BYTES_MOVED, memory.because) for phase in run.phases}}
    counters = {phase: ReferenceCounter() for phase in run.phases}

    @contextmanager
    def around(phase: str) -> Iterator[None]:
        with counters[phase]:
            yield

    run.step(around)
    readings: dict[str, Reading] = {}
    for phase in run.phases:
        counter = counters[phase]
        readings[f"flops.{phase}.elementwise"] = _counted(counter.elementwise, ELEMENTWISE, counter.unknown)
        readings[f"bytes_moved.{phase}"] = _counted(counter.bytes_moved, BYTES_MOVED, counter.unknown)
    return readings


def _counted(value: int, instrument: str, unknown: Iterable[str]) -> Reading:
    names = ", ".join(sorted(unknown))
    if names:
        return Reading(None, instrument, f"{names} cannot be counted in a run: torch has no reference decomposition")
    return Reading(value, instrument)


def _provenance(device: str) -> dict[str, str]:
    machine = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine()
    return {
        **torch_version(),
        "python": platform.python_version(),
        "platform": platform.system(),
        "device": f"{device} ({machine})",
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "seed": str(SEED),
    }
