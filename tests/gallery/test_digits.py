"""Any digit of a gallery's report that somebody edits makes ``napkin verify`` fail: in numbers, figures, dates, versions, inputs.

Each report is derived once; what its edited copies are compared with is then made of that derivation, unless they name another one.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from calc.errors import BadInputError
from reports.jobs import job
from reports.live import verify_reports
from reports.page.inputs import Inputs, embedded
from tests.gallery.entries import ENTRIES, FOLDER

pytestmark = pytest.mark.slow
NAMES = [entry.name for entry in ENTRIES if entry.words]
SUFFIXES = (".md", ".html", ".json")
AT_RANDOM = 10
"""Of each file; of those inside its inputs, each of which has texts made for it, as many as fall among them and two besides."""


@pytest.fixture(scope="module")
def once() -> Iterator[None]:
    """What is derived stays, by what was asked for, and with each derivation what is checked, followed and derived of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "derive", cache_by_request(job.derive))
        for name in ("check", "timeline", "levers", "equations"):
            patch.setattr(job, name, cache_by_derivation(getattr(job, name)))
        yield


def cache_by_derivation(function: Any) -> Any:
    actual: dict[int, Any] = {}

    def once(derivation: Any, *words: Any) -> Any:
        if id(derivation) not in actual:
            actual[id(derivation)] = function(derivation, *words)
        return actual[id(derivation)]

    return once


def cache_by_request(derive: Any) -> Any:
    actual: dict[str, Any] = {}

    def once(request: Any, progress: Any) -> Any:
        key = json.dumps([request.model, dict(request.sizes), request.options.to_json()])
        if key not in actual:
            actual[key] = derive(request, progress)
        return actual[key]

    return once


@cache
def made_again(line: str) -> Mapping[str, str]:
    """The texts that inputs make, by suffix."""
    inputs = embedded(f"<!-- napkin-inputs {line} -->", ".md")
    assert inputs is not None
    texts, _ = verify_reports._remade(inputs, (), None, lambda _: None, SUFFIXES)
    return {Path(name).suffix: text for name, text in texts.items()}


def fails(file: Path, edited: str, inputs: Inputs, right: str) -> bool:
    """Whether verification of an edited text fails: at once, since it is not what its inputs make, or since those make another one."""
    try:
        now = embedded(edited, file.suffix)
    except BadInputError:
        return True
    if now == inputs:
        return bool(list(verify_reports.differences(edited, right)))
    return now is None or not verify_reports.verify(file, edited, now, (), None, lambda _: None).ok


def chosen(text: str, suffix: str, chance: random.Random) -> list[int]:
    """Places of digits to edit: at random, and one in a date, a version, the inputs and a figure where there is one."""
    style = re.search(r"<style>.*?</style>", text, re.DOTALL)
    outside = [m.start() for m in re.finditer(r"[0-9]", text) if style is None or not style.start() < m.start() < style.end()]
    places = chance.sample(outside, AT_RANDOM)
    for part in (r"Made by Napkin on ([\d-]+)", r'"date": "([\d-]+)"', r"\b(\d+\.\d+\.\d+\+cpu)", r"napkin-inputs[^\n]*", r"<svg.*?</svg>"):
        actual = list(re.finditer(part, text, re.DOTALL))
        if actual:
            digits = re.finditer(r"[0-9]", actual[-1][0])
            places.append(actual[-1].start() + chance.choice([m.start() for m in digits]))
    return places


@pytest.mark.parametrize("name", NAMES)
def test_every_edited_digit_of_the_gallery_shows(name: str, once: None) -> None:
    """Some forty of each report, in its three formats, which are what comes out today; all reports together have more than three
    hundred."""
    carried = embedded((FOLDER / f"{name}.md").read_text(encoding="utf-8"), ".md")
    assert carried is not None
    texts, chance, edits = made_again(carried.text()), random.Random(name), 0
    for suffix in SUFFIXES:
        right = texts[suffix]
        assert right == (FOLDER / f"{name}{suffix}").read_text(encoding="utf-8"), f"{name}{suffix} is of another day's code: make gallery"
        inputs = embedded(right, suffix)
        assert inputs == carried
        assert not fails(FOLDER / f"{name}{suffix}", right, inputs, right)
        for at in chosen(right, suffix, chance):
            edited = right[:at] + str((int(right[at]) + chance.randint(1, 9)) % 10) + right[at + 1 :]
            assert fails(FOLDER / f"{name}{suffix}", edited, inputs, right), (suffix, at, right[at - 60 : at + 20])
            edits += 1

    assert edits * len(NAMES) >= 300


def test_a_date_and_a_version_agree_with_themselves_in_every_format(once: None) -> None:
    """Each digit of the day and of the machine, wherever it stands: one that is changed alone is no longer what its inputs make."""
    carried = embedded((FOLDER / "homework.md").read_text(encoding="utf-8"), ".md")
    assert carried is not None
    noted = [carried.date, *carried.environment.values()]
    for suffix, right in made_again(carried.text()).items():
        for text in {value for value in noted if re.search(r"\d\.\d|\d-\d", value)}:
            for actual in re.finditer(re.escape(text), right):
                at = actual.start() + re.search(r"\d", text).start()
                edited = right[:at] + str((int(right[at]) + 1) % 10) + right[at + 1 :]
                assert fails(FOLDER / f"homework{suffix}", edited, carried, right), (suffix, right[at - 60 : at + 20])
