"""``napkin transfers``: what it takes to bring data to a training step, by expression and measured."""

from __future__ import annotations

from dataclasses import replace

import click

from reports.cli.common import HELD, Integer, NumberRange, command_line, device_here, hand_over, measuring_arguments, talk, unmeasured


@click.command()
@measuring_arguments
@click.option("--bytes", "size", metavar="SIZE", help="Bytes of each copy, as 64MiB or 1GB: 64 MiB, and 256 MiB with a CUDA device.")
@click.option("--batch", default=32, show_default=True, type=Integer(1, 2**20), metavar="INTEGER", help="Sequences of a batch.")
@click.option("--length", default=1024, show_default=True, type=Integer(1, 2**24), metavar="INTEGER", help="Tokens of each.")
@click.option("--repeat", default=5, show_default=True, type=Integer(1, 1000), metavar="INTEGER", help="Repetitions, at least.")
@click.option("--seconds", default=0.5, show_default=True, type=NumberRange(0, 3600), metavar="NUMBER", help="… for so long at least.")
def transfers(
    size: str | None,
    batch: int,
    length: int,
    device: str | None,
    repeat: int,
    seconds: float,
    output: str | None,
    as_json: bool,
    strict: bool,
) -> int:
    """Time memory-mapped tokens, copies in memory and to a device, pinned and pageable, blocking and not, and beside compute.

    Beside each stands the expression: bytes over bandwidth; a copy before compute adds up, one beside it leaves the longer of the two.
    """
    from calc.capacity.questions.values import read
    from calc.hardware.benchmark import Repeat
    from calc.performance.transfers import KIND, document, measured, require_sizes
    from reports.jobs import job
    from reports.views import transfers as shown
    from reports.writers.terminal import Terminal

    here, absent = device_here(device)
    default = 2**26 if here == "cpu" else 2**28
    nbytes = default if size is None else int(read("--bytes", size, "bytes", whole=True).value)
    require_sizes(nbytes, batch, length)
    if absent:
        return unmeasured(KIND, absent, as_json, strict)
    because = job.no_cuda() if here == "cpu" and device is None else "not measured: the CPU was asked for" if here == "cpu" else ""
    with talk() as say:
        transferred = measured(nbytes, batch, length, here, Repeat(2, repeat, seconds, max(repeat, 1000)), because, say)
    made = document(replace(transferred, command=command_line()))
    hand_over(made, output, as_json, lambda: shown.show(transferred, batch, length, Terminal()))
    return HELD
