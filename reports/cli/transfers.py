"""``napkin transfers``: what it takes to bring data to a training step, by expression and measured."""

from __future__ import annotations

from dataclasses import replace

import click

from reports.cli.common import (
    SEED_OPTION,
    SUCCESS,
    Integer,
    NumberRange,
    command_line,
    device_here,
    hand_over,
    measuring_arguments,
    refuse_idle,
    talk,
    unmeasured,
)


@click.command()
@measuring_arguments
@click.option("--bytes", "size", metavar="SIZE", help="Bytes of each copy, e.g. 1GB (default 64MiB, with a CUDA device 256MiB).")
@click.option("--batch", default=32, show_default=True, type=Integer(1, 2**20), metavar="INTEGER", help="Sequences in a batch.")
@click.option("--length", default=1024, show_default=True, type=Integer(1, 2**24), metavar="INTEGER", help="Tokens in a sequence.")
@click.option(
    "--workers", default=2, show_default=True, type=Integer(0, 64), metavar="INTEGER", help="Worker processes of the data loader."
)
@click.option(
    "--prefetch", default=2, show_default=True, type=Integer(1, 64), metavar="INTEGER", help="Batches that each worker loads ahead."
)
@click.option("--repeat", default=5, show_default=True, type=Integer(1, 1000), metavar="INTEGER", help="Minimum number of repetitions.")
@click.option(
    "--seconds", default=0.5, show_default=True, type=NumberRange(0, 3600), metavar="NUMBER", help="Minimum total time in seconds."
)
@SEED_OPTION
def transfers(
    size: str | None,
    batch: int,
    length: int,
    workers: int,
    prefetch: int,
    device: str | None,
    repeat: int,
    seconds: float,
    seed: int,
    output: str | None,
    as_json: bool,
    strict: bool,
) -> int:
    """Time data transfers: memory-mapped tokens, copies in memory and to a device, pinned or overlapping compute, and data loaders.

    Each time is shown beside its expression, bytes ÷ bandwidth. A copy before compute adds to the time of compute; a copy that overlaps it,
    or a loader whose workers load ahead, takes the longer of both. Workers pay off where a batch takes longer to load than to hand over.
    """
    from calc.capacity.questions.values import read
    from calc.hardware.benchmark import Repeat
    from calc.performance.transfers import KIND, document, measured, require_sizes
    from reports.jobs import job
    from reports.views import transfers as shown

    if not workers:
        refuse_idle("without workers, which load ahead", "prefetch")
    machine, absent = device_here(device)
    default = 2**26 if machine == "cpu" else 2**28
    nbytes = default if size is None else int(read("--bytes", size, "bytes", integer=True).value)
    require_sizes(nbytes, batch, length)
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    because = job.no_cuda() if machine == "cpu" and device is None else "not measured: the CPU was asked for" if machine == "cpu" else ""
    with talk() as say:
        timed = Repeat(2, repeat, seconds, max(repeat, 1000))
        transferred = measured(nbytes, batch, length, machine, timed, because, say, workers, prefetch, seed)
    written = document(replace(transferred, command=command_line()))
    hand_over(written, output, as_json, lambda out: shown.show(transferred, batch, length, out))
    return SUCCESS
