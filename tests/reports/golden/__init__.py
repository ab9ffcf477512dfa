"""Whole reports and terminal texts of small models, as somebody last read them.

``python -m tests.reports.golden`` rewrites the files of this folder: read the difference before you commit it. No file holds a date or a
version.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

import calc
from reports.cli import napkin
from reports.jobs import compared
from reports.page.build import PageContent, build
from reports.writers import markdown
from tests.reports import pages
from tests.reports.views import measured

FOLDER = Path(__file__).parent
SETTINGS = {"SOURCE_DATE_EPOCH": "0", "COLUMNS": "140", "TERM": "dumb", "NO_COLOR": "1"}
DECODER = "L=6 d=64 h=4 g=2 f=128 V=500 T=128"
TRAINING = "training-time parameters=70e9 tokens=15e12 gpu=h100-sxm mfu=0.5"
TWO_LAYERS = "two-layer -d B=3 -d D=7 -d K=5 --optimizer sgd"


def transcript(*commands: str) -> Callable[[], str]:
    """Commands and their standard output, as on a terminal of 140 columns."""

    def run(command: str) -> str:
        done = CliRunner().invoke(napkin, shlex.split(command))
        assert done.exit_code == 0, done.stderr
        return f"$ napkin {command}\n{done.stdout}"

    return lambda: "\n".join(map(run, commands))


def used() -> str:
    """The report of a model in inference mode: a forward and no more."""
    derivation = calc.derive(calc.load("linear"), mode="infer")
    return markdown.write(build(PageContent(replace(derivation, provenance={}))))


def comparison() -> str:
    """Two sizes and two optimizers of one model."""
    sides = compared.sides("mlp B=5", "f=7 optimizer=sgd", {"d": "3", "K": "2"})
    contrast, inputs = compared.compare(sides, lambda _: None)
    return compared.texts(contrast, replace(inputs, environment={}))["compare.md"]


PAGES: Mapping[str, Callable[[], str]] = {
    "sample.md": lambda: markdown.write(pages.page()),
    "inference.md": used,
    "comparison.md": comparison,
    "derive.txt": transcript(
        "derive linear",
        "derive linear --explain flops.forward.matmul",
        "derive linear --saved",
        "derive linear --peak",
        "derive linear --coverage",
    ),
    "memory.txt": transcript(
        "bytes-per-parameter mlp -d d=67 -d f=71 --precision bf16-master --devices 8",
        "compare mlp f=7 d=3 K=2 --explain parameters",
    ),
    "roofline.txt": transcript(f"roofline {TWO_LAYERS} --gpu h100-sxm --top 2"),
    "questions.txt": transcript(f"ask {TRAINING} gpus=1024", f"ask {TRAINING} days=30 solve=gpus"),
    "sharding.txt": transcript(
        f"shard {DECODER} data=2 tensor=2 pipeline=3 batch=8 sequence=regather zero=1 gpu=h100-sxm",
        "shard parameters=7.5e9 data=64 zero=2",
        "shard parameters=7e9",
        f"layout {DECODER} devices=8 gpu=h100-sxm batch=16",
    ),
    "mathematics.txt": transcript(
        "gradients two-layer",
        "gradients two-layer --notation matrix",
        "gradients linear --steps",
        "einsum 'b s d, d f -> b s f' b=2 s=3 d=5 f=7",
        "einsum 'a b, b c, c d -> a d' a=100 b=2 c=50 d=3",
        "optimizer adamw",
        "dtype fp32 0.15625",
        "storage",
    ),
    "measured.txt": measured.everything,
}


def written(name: str) -> str:
    """The page or the text as it comes out today."""
    with mock.patch.dict(os.environ, SETTINGS):
        text = PAGES[name]().replace("\u00a0", " ")
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n") + "\n"
