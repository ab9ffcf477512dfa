"""``napkin ask``, ``shard`` and ``layout``. Imports neither torch nor SymPy, so that an answer is there at once."""

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


@click.command()
@click.argument("words", nargs=-1, metavar="[MODEL] [KEY=VALUE]...")
@pairs_option
@click.option("--json", "as_json", is_flag=True, help="Write every line, collective and condition as JSON.")
def shard(words: Sequence[str], as_json: bool) -> None:
    """Derive what each device stores and sends in a training step, and the minimum time of the step.

    \b
    napkin shard llama3-8b data=8 zero=3 gpu=h100-sxm
    napkin shard llama3-70b data=16 tensor=8 sequence=regather zero=1 micro=1 batch=512 gpu=h100-sxm
    napkin shard L=126 d=16384 h=128 g=8 f=53248 V=128256 T=8192 data=128 tensor=8 pipeline=16 batch=2048
    napkin shard parameters=7.5e9 data=64 zero=2

    The layout: data, tensor, pipeline, context, expert (ranks), interleave, micro, batch (sequences of a step), zero=0..3,
    sequence=off|saved|regather, checkpointing=none|attention|block, exchange=ring|gather, rank (whose share is counted: 0). With
    devices=N, the ranks must multiply to N. The machine: gpu, hardware (a file of them), dtype, efficiency, node, memory, link, network,
    price. The step: precision, optimizer, attention.
    Other symbols are sizes of the model; a decoder given by its sizes also takes gated, bias, tied, dropout = yes or no.
    """
    from calc.capacity.sharding.request import shard as account_of

    name, inputs = _read(words)
    with talk() as say:
        account = account_of(name, inputs, say)
    from reports.views import sharding
    from reports.views.sharding import of_account

    print_result(as_json, lambda: of_account(account), lambda out: sharding.show(account, out))


@click.command()
@click.argument("words", nargs=-1, metavar="[MODEL] [KEY=VALUE]...")
@pairs_option
@click.option("--json", "as_json", is_flag=True, help="Write the winner with all its lines, the front and the runners-up as JSON.")
def layout(words: Sequence[str], as_json: bool) -> None:
    """Find the fastest layout of a model on N devices that fits: every valid one is evaluated, and the best explained.

    \b
    napkin layout llama3-70b devices=512 gpu=h100-sxm batch=1024
    napkin layout L=126 d=16384 h=128 g=8 f=53248 V=128256 T=8192 devices=16384 gpu=h100-sxm batch=2048
    napkin layout llama3-8b devices=64 gpu=a100-sxm-80 batch=256 tensor=8 zero=1 fewer=yes

    Layout keys you give stay fixed in the search; the other keys are those of napkin shard. fewer=yes also tries fewer devices.
    """
    from calc.capacity.sharding.request import best

    name, inputs = _read(words)
    with talk() as say:
        ranking = best(name, inputs, say)
    from reports.views import sharding
    from reports.views.sharding import of_search

    print_result(as_json, lambda: of_search(ranking), lambda out: sharding.show_search(ranking, out))


def _read(words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The model, if one of the words is neither KEY=VALUE (``gpt2:dropout=0.1`` is a model) nor a key alone, and the pairs."""
    from calc.capacity.sharding.request import WORDS
    from calc.symbolic.assignments import is_assignment, read_assignments

    at = next((i for i, word in enumerate(words) if not is_assignment(word) and word not in WORDS), None)
    pairs = words if at is None else [*words[:at], *words[at + 1 :]]
    return None if at is None else words[at], read_assignments(pairs, "KEY=VALUE, e.g. data=8")
