"""``napkin ask``: capacity questions, both ways. Imports neither torch nor SymPy, so that the answer is there at once."""

from __future__ import annotations

from collections.abc import Sequence

import click

from reports.cli.common import pairs_option, print_result, talk


@click.command()
@click.argument("question", metavar="QUESTION")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE]...")
@pairs_option
@click.option("--json", "as_json", is_flag=True, help="Write the answer, its steps and notes as JSON.")
def ask(question: str, words: Sequence[str], as_json: bool) -> None:
    """Answer a capacity question: how long, how many, what fits, what it costs. See napkin list questions.

    \b
    napkin ask training-time parameters=70e9 tokens=15e12 gpu=h100-sxm gpus=1024 mfu=0.5
    napkin ask training-time parameters=70e9 tokens=15T gpu=h100-sxm mfu=50% days=30 solve=gpus
    napkin ask largest-model devices=8 memory=80GB optimizer=adamw precision=fp32
    napkin ask sharding parameters=7.5e9 data=64 zero=3
    napkin ask fewest-ranks parameters=70e9 zero=3 gpu=h100-sxm

    solve=KEY solves for KEY. Numbers may be written 70e9, 15T, 80GB, 80GiB, 30days, 50%, 3.35TB/s, 400e3*1024*1024.
    devices is another word for gpus.

    
    gpu=ID         peak, memory, bandwidth, … of a device
    dtype=FORMAT   format whose peak is used (default bf16)
    sparse=yes     peak with two of every four weights zero
    hardware=FILE  TOML file with devices of your own
    model=NAME     exact counts of a model, at sizes: T=4096

    See napkin list hardware and napkin list models.
    """
    from calc.capacity.questions import answered
    from calc.capacity.questions.registry import question as named
    from calc.symbolic.assignments import read_assignments

    problem, values = named(question), read_assignments(words, "KEY=VALUE, e.g. gpus=1024")
    if "model" in values:
        with talk() as say:
            answer = answered(problem, values, say)
    else:
        answer = answered(problem, values)
    from reports.views.asked import show

    print_result(as_json, answer.to_json, lambda out: show(answer, out))
