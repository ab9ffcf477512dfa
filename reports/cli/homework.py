"""``napkin homework``: the accounting of a Transformer as an exercise sheet, with the solutions apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from reports.cli.common import output_folder, pairs_option, say_written, talk


@click.command()
@click.argument("model")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE[,VALUE]...]...")
@pairs_option
@click.option("-o", "--output", default=".", show_default=True, metavar="DIR", help="Folder for the files.")
@click.option("--quantity", "quantities", multiple=True, metavar="NAME", help="Ask for this quantity only; may be repeated.")
@click.option("--context", metavar="TOKENS", help="Sequence length of the question on longer sequences (default 16384).")
@click.option("--memory", metavar="BYTES", help="Memory of one device, for the largest batch (default 80GB).")
@click.option("--gpu", "gpus", multiple=True, metavar="ID", help="A device of the training run (default a100-sxm-80 and h100-sxm).")
@click.option("--mfu", metavar="SHARE", help="Model FLOPs utilization of the training run (default 0.5).")
@click.option("--steps", metavar="NUMBER", help="Optimizer steps of the training run (default 400e3).")
@click.option("--batch", metavar="SEQUENCES", help="Sequences in a step of the training run (default 1024).")
@click.option("--latex", is_flag=True, help="Write exercises.tex and solutions.tex too, for pdflatex.")
@click.option("--no-cache", is_flag=True, help="Trace the steps again, and neither read nor write the cache.")
def homework(
    model: str,
    words: Sequence[str],
    output: str,
    quantities: Sequence[str],
    gpus: Sequence[str],
    latex: bool,
    no_cache: bool,
    **run: str | None,
) -> None:  # fmt: skip
    """Write exercises.md and .html, and solutions.md, .html and .json: a model's accounting as the questions of an assignment.

    The questions: parameters, matmuls of a forward pass, their shares over model sizes and sequence lengths, training memory as a function
    of the batch size, the largest batch, FLOPs of the optimizer, days of training. Lists of sizes make several models to compare: the
    first has the first value of each list, and so on. All other questions are about the last one: napkin homework gpt2
    d=768,1024,1280,1600 L=12,24,36,48 h=12,16,20,25. Settings of the step go with the sizes: attention=math optimizer=sgd.
    """
    from calc.symbolic.assignments import read_assignments
    from reports.jobs import homework as jobs
    from reports.jobs import job
    from reports.jobs.request import PAIRS
    from reports.jobs.side_by_side import steps

    table_steps = steps((model,), read_assignments(words, PAIRS), quantities, not no_cache)
    table_steps.requests()  # what cannot be asked for is refused before any work
    assumed, folder = jobs.run_from({name: text for name, text in run.items() if text is not None}, gpus), output_folder(output)
    with talk() as say:
        made = jobs.compute(table_steps, assumed, say, quantities=quantities)
    texts = {name: text for sheet in jobs.SHEETS for name, text in jobs.texts(made, sheet, latex=latex).items()}
    say_written(*job.write_all(Path(folder), texts))
