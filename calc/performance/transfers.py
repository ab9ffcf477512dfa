"""Host-to-device transfers of a training step: expressions for a copy alone, before compute and overlapped, and measurements of all three.

A copy takes its bytes over the bandwidth. Before compute the two times add; overlapped, the longer one remains, if the copy is
asynchronous: from pinned memory, non-blocking, on its own stream. Importing this module does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from calc.derive.to_json import number
from calc.errors import MeasurementError
from calc.hardware.times import Repeat, TransferPlan
from calc.symbolic.worked import Number, WorkedCalculation, WorkedStep, worked_calculation, worked_input

if TYPE_CHECKING:
    from calc.measure.copies import Beside, Copied, Unmeasured
    from calc.measure.loading import Loaded

KIND = "measurement of transfers"
_SHARED = "/dev/shm"  # Linux's shared memory, by which workers pass tensors


@dataclass(frozen=True, slots=True)
class Transfers:
    """The bytes moved and the times. ``beside`` is a copy overlapped with compute."""

    machine: Mapping[str, Any]
    clock: str
    copies: tuple[Copied, ...]
    beside: Beside | None
    unmeasured: tuple[Unmeasured, ...]
    command: str = ""
    loaders: tuple[Loaded, ...] = ()
    prefetch: int = 0


def copy_time(nbytes: Number, bandwidth: Number, source: str = "as given") -> WorkedCalculation:
    """Seconds of one copy."""
    return worked_calculation(
        "copy",
        (worked_input("n", nbytes, "bytes", "bytes moved"), worked_input("w", bandwidth, "bytes/s", "bandwidth, in one direction", source)),
        (WorkedStep("t", "n/w", "s", "time of the copy", "every byte passes once, at the rate of the slowest link"),),
    )


def beside(copy: Number, compute: Number) -> WorkedCalculation:
    """Seconds of a step that copies and computes: in sequence, and overlapped, which is the answer."""
    return worked_calculation(
        "copy overlapped with compute",
        (
            worked_input("c", copy, "s", "time of the copy alone", "measured"),
            worked_input("k", compute, "s", "time of the compute alone", "measured"),
        ),
        (
            WorkedStep(
                "a", "c + k", "s", "one after the other", "the device waits for its data: the copy blocks, or both are on one stream"
            ),
            WorkedStep(
                "o", "Max(c, k)", "s", "at the same time", "the copy engine and the processors work in parallel; the longer one remains"
            ),
        ),
        ("a lower bound: both use the memory of the device, and launches take time",),
    )


def batch_bytes(batch: Number, length: Number) -> WorkedCalculation:
    """Bytes of a batch of tokens with its targets, as copied to the device."""
    return worked_calculation(
        "batch",
        (worked_input("B", batch, "sequences", "sequences"), worked_input("T", length, "tokens", "tokens of each")),
        (WorkedStep("n", "2*8*B*T", "bytes", "bytes of a batch", "inputs and targets, 8 bytes each: embeddings and losses take int64"),),
    )


def ahead(workers: Number, prefetch: Number, batch: Number) -> WorkedCalculation:
    """Host memory of the batches of a data loader, in bytes."""
    return worked_calculation(
        "data loader",
        (
            worked_input("W", workers, "workers", "worker processes"),
            worked_input("p", prefetch, "batches", "prefetch_factor, batches that each worker loads ahead"),
            worked_input("n", batch, "bytes", "bytes of a batch"),
        ),
        (
            WorkedStep("a", "W*p", "batches", "batches loaded ahead", "a new index is sent only when a batch is taken, from W·p at first"),
            WorkedStep("m", "(a + 1)*n", "bytes", "memory of the batches on the host", "those ahead and the one in use"),
        ),
        ("memory-mapped pages and the workers' own memory come on top",),
    )


def loop_time(loaded: Loaded) -> Fraction:
    """Seconds of a step and its batch: in sequence without workers; with workers the longer one remains, as they load during the step."""
    step, batch = Fraction(loaded.step), loaded.alone.seconds
    return max(step, batch) if loaded.workers else step + batch


def measured(
    plan: TransferPlan, device: str, repeat: Repeat, because: str = "", progress: Callable[[str], None] = lambda _: None
) -> Transfers:
    """Every kind of copy on this machine, and data loaders unless the plan has none. Without a device, copies to it and pinned memory are
    listed as unmeasured, with the reason."""
    from calc.measure import copies, loading
    from calc.measure.free_memory import available_bytes
    from calc.measure.machine import machine
    from calc.measure.timing import HostWatch

    nbytes, on_device = plan.nbytes, device.startswith("cuda")
    if 4 * nbytes > available_bytes():
        raise MeasurementError(f"{4 * nbytes:,} bytes are needed and {available_bytes():,} are free: give fewer --bytes")
    if plan.workers:
        _require_room_ahead(plan, plan.workers)

    def all_copies() -> Iterator[Copied | Loaded | Unmeasured]:
        progress("memory-mapped tokens")
        yield from copies.mapped(plan, repeat)
        progress("copies in memory")
        yield copies.host_copy(nbytes, repeat)
        if on_device:
            progress(f"copies to and from {device}")
            yield from copies.device_copies(nbytes, device, repeat)
        if because:
            yield copies.Unmeasured("copies to a device, and overlapped with compute", because)
        if plan.workers is not None:
            progress("data loaders")
            yield from loading.loaders(plan, on_device, repeat)

    measurements = tuple(all_copies())
    overlapped = copies.beside_compute(nbytes, device, repeat) if on_device else None
    copied = tuple(each for each in measurements if isinstance(each, copies.Copied))
    unmeasured = tuple(each for each in measurements if isinstance(each, copies.Unmeasured))
    loaded = tuple(each for each in measurements if isinstance(each, loading.Loaded))
    ahead_of = plan.prefetch if plan.workers else 0
    return Transfers(machine(device), HostWatch().name, copied, overlapped, unmeasured, loaders=loaded, prefetch=ahead_of)


def _require_room_ahead(plan: TransferPlan, workers: int) -> None:
    """Refuse batches that do not fit in memory, where workers pass them in shared memory."""
    from calc.measure.free_memory import available_bytes

    needed = int(ahead(workers, plan.prefetch, batch_bytes(plan.batch, plan.length).value).value)
    shared = os.statvfs(_SHARED) if os.path.isdir(_SHARED) else None
    free = available_bytes() if shared is None else min(available_bytes(), shared.f_bavail * shared.f_frsize)
    if needed > free:
        raise MeasurementError(f"{needed:,} bytes of batches are needed and {free:,} are free: give fewer --workers, --prefetch or --batch")


def bandwidth(copied: Copied) -> Fraction:
    """Bytes per second."""
    return copied.nbytes / copied.times.seconds


def document(transfers: Transfers) -> dict[str, Any]:
    """The ``"schema": 1`` document of the transfers, as plain data."""
    return {
        "schema": 1,
        "kind": KIND,
        "command": transfers.command,
        **transfers.machine,
        "clock": transfers.clock,
        "copies": [_copy(copied) for copied in transfers.copies],
        "beside_compute": None if transfers.beside is None else _beside(transfers.beside),
        "loaders": [_loader(loaded, transfers.prefetch) for loaded in transfers.loaders],
        "unmeasured": [{"name": each.name, "because": each.because} for each in transfers.unmeasured],
    }


def _copy(copied: Copied) -> dict[str, Any]:
    returned = None if copied.returned is None else copied.returned.to_json()
    fields = {"name": copied.name, "bytes": number(copied.nbytes), "bytes_per_second": float(bandwidth(copied))}
    return {**fields, "times": copied.times.to_json(), "returned": returned}


def _loader(loaded: Loaded, prefetch: int) -> dict[str, Any]:
    expected = {"step_in_loop_seconds": float(loop_time(loaded)), "batches_ahead": loaded.workers * prefetch}
    setup = {"name": loaded.name, "workers": loaded.workers, "prefetch": prefetch if loaded.workers else 0, "pinned": loaded.pinned}
    times = {"batch": loaded.alone.to_json(), "wait_seconds": loaded.step, "step_in_loop": loaded.in_loop.to_json()}
    return {**setup, **times, "batches_ahead": loaded.ahead, "expected": expected}


def _beside(overlap: Beside) -> dict[str, Any]:
    expected = beside(overlap.copy.seconds, overlap.compute.seconds)
    measured = {"copy": overlap.copy, "compute": overlap.compute, "one_after_the_other": overlap.after, "at_the_same_time": overlap.beside}
    predicted = {"one_after_the_other": float(expected["a"]), "at_the_same_time": float(expected["o"])}
    return {**{name: times.to_json() for name, times in measured.items()}, "predicted_seconds": predicted}
