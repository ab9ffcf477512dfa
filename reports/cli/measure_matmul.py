"""``napkin measure-matmul``: one matrix multiplication, timed in every number format of the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from reports.cli.common import (
    SUCCESS,
    Integer,
    NumberRange,
    command_line,
    device_here,
    hand_over,
    measuring_arguments,
    rate_of,
    require_gpu,
    sizes_arguments,
    talk,
    unmeasured,
)


@click.command("measure-matmul")
@measuring_arguments
@sizes_arguments("Set m, k or n (default 16384, 32768 and 8192; on a CPU 512, 1024 and 256). m=512 without -d is the same.", model=None)
@click.option(
    "--dtype", "dtypes", multiple=True, metavar="NAME", help="Number format: fp32, tf32, bf16, fp16 or fp8 (default: all); may be repeated."
)
@click.option("--repeat", default=5, show_default=True, type=Integer(1, 1000), metavar="INTEGER", help="Minimum number of repetitions.")
@click.option(
    "--seconds", default=1.0, show_default=True, type=NumberRange(0, 3600), metavar="NUMBER", help="Minimum total time in seconds."
)
@click.option("--peak", metavar="RATE", help="Peak FLOP/s of the one format given: 100e9, 71.2TFLOP/s.")
@click.option("--gpu", metavar="ID", help="Accelerator whose peaks are used, if it is not recognized by name (napkin list hardware).")
def measure_matmul(
    sizes: Sequence[str],
    dtypes: tuple[str, ...],
    device: str | None,
    repeat: int,
    seconds: float,
    peak: str | None,
    gpu: str | None,
    output: str | None,
    as_json: bool,
    strict: bool,
) -> int:
    """Time A (m, k) times B (k, n) in each number format: FLOPs, seconds, FLOP/s, and the share of that format's peak.

    The default sizes are those of the lecture's experiment on a CUDA device, and a 32nd of each on a CPU, where they would take minutes.
    """
    from calc.hardware.benchmark import Repeat
    from calc.performance.matmul import DTYPES, KIND, document, products, sizes_for
    from reports.jobs.request import sizes_from
    from reports.views import matmul

    machine, absent = device_here(device)
    if peak is not None and len(set(dtypes)) != 1:
        raise click.UsageError("--peak holds for one number format: give that format with --dtype")
    require_gpu(gpu, machine)
    rate, shape = rate_of(peak), sizes_for(machine, sizes_from(sizes))
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    with talk() as say:
        timed = products(shape, dtypes or DTYPES, machine, Repeat(3, repeat, seconds, max(repeat, 1000)), gpu=gpu, peak=rate, progress=say)
    default = shape == sizes_for(machine, {})
    written = document(replace(timed, command=command_line()))
    hand_over(written, output, as_json, lambda out: matmul.show(timed, default, out))
    return SUCCESS
