"""Module paths as patterns."""

from __future__ import annotations

import itertools
import random
import re

from reports.typeset.paths import pattern, patterns


def expanded(text: str) -> list[str]:
    """The paths of a pattern, by an expansion of its own."""
    parts = [[part] if not part.startswith("{") else _choices(part[1:-1]) for part in text.split(".")]
    return [".".join(path) for path in itertools.product(*parts)]


def _choices(inside: str) -> list[str]:
    spans = [(re.fullmatch(r"(\d+)–(\d+)", name), name) for name in inside.split(",")]
    return [one for span, name in spans for one in (map(str, range(int(span[1]), int(span[2]) + 1)) if span else [name])]


def test_paths_that_differ_in_one_component_are_one_pattern() -> None:
    """Three or more consecutive numbers are a range; what differs in two places at once stays apart."""
    blocks = [f"layer1.{i}.bn{j}.{what}" for i in range(3) for j in (1, 2) for what in ("weight", "bias")]
    assert "layer1.{0–2}.{bn1,bn2}.{weight,bias}" == pattern(blocks)
    assert "a.{0,1}, b.{0,2,3}" == pattern(["a.0", "a.1", "b.0", "b.2", "b.3"])
    assert "a.{0–2,9,10,12–14}" == pattern([f"a.{i}" for i in (10, 12, 13, 14, 0, 1, 2, 9)])
    assert "a.{00,01,02}" == pattern(["a.00", "a.01", "a.02"])
    assert "a.0.x, b.1.x" == pattern(["a.0.x", "b.1.x"])
    assert "wte" == pattern(["wte"])


def test_patterns_expand_to_the_paths_and_to_no_others() -> None:
    """Each path once, in sets drawn at random."""
    draw = random.Random(30)
    names = [".".join(p) for p in itertools.product("ab", "0123567", ("w", "c"))] + ["a", "b.w", "a.0"]
    for _ in range(300):
        paths = list(dict.fromkeys(draw.sample(names, draw.randint(1, 12))))
        assert sorted(paths) == sorted(path for each in patterns(paths) for path in expanded(each))
