"""``napkin measure-matmul``: one matrix multiplication, timed in every number format of the device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

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
    talk,
    unmeasured,
)

_SIZE: dict[str, Any] = {"type": Integer(1, 2**24), "metavar": "INTEGER"}


@click.command("measure-matmul")
@measuring_arguments
@click.option("--m", **_SIZE, help="Rows of the first matrix (default 16384, on a CPU 512).")
@click.option("--k", **_SIZE, help="Columns of the first, rows of the second (default 32768, on a CPU 1024).")
@click.option("--n", **_SIZE, help="Columns of the second matrix (default 8192, on a CPU 256).")
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
    m: int | None,
    k: int | None,
    n: int | None,
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

    The sizes are those of the lecture's experiment on a CUDA device, and a 32nd of each on a CPU, where they would take minutes.
    """
    from calc.hardware.benchmark import Repeat
    from calc.performance.matmul import DTYPES, KIND, document, products, sizes_for
    from reports.views import matmul

    machine, absent = device_here(device)
    if peak is not None and len(set(dtypes)) != 1:
        raise click.UsageError("--peak holds for one number format: give that format with --dtype")
    require_gpu(gpu, machine)
    rate, sizes = rate_of(peak), sizes_for(machine, m, k, n)
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    with talk() as say:
        timed = products(sizes, dtypes or DTYPES, machine, Repeat(3, repeat, seconds, max(repeat, 1000)), gpu=gpu, peak=rate, progress=say)
    default = sizes == sizes_for(machine, None, None, None)
    written = document(replace(timed, command=command_line()))
    hand_over(written, output, as_json, lambda out: matmul.show(timed, default, out))
    return SUCCESS
