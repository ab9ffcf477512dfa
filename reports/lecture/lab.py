"""Derivations and checks that claims are computed with, each made once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calc.derive.result import Derivation, Quantity
from calc.mathematics.autodiff.derived import Derived
from calc.mathematics.gradients import Checked, gradients
from calc.mathematics.gradients import check as check_gradients
from calc.memory.inference import Inference, inference
from calc.models.load import load
from calc.options import made
from calc.pipeline.check import Report, check
from calc.pipeline.pipeline import derive
from calc.platform.progress import Progress
from calc.spec import Spec
from calc.symbolic.readable import readable
from reports.lecture.runs import own_spec


def closed_form(quantity: Quantity) -> str:
    """The closed form of a quantity as the sentences of the lecture write it."""
    return readable(str(quantity.text))


class Lab:
    """A cache of derivations, checks, gradients and inference results, by model, sizes and options."""

    def __init__(self, progress: Progress = lambda _: None) -> None:
        self.progress = progress
        self._derived: dict[tuple[str, ...], Derivation] = {}
        self._checked: dict[tuple[str, ...], Report] = {}
        self._used: dict[tuple[str, ...], Inference] = {}
        self._differentiated: dict[str, tuple[Derived, Checked]] = {}

    def derive(self, model: str, sizes: Mapping[str, int] | None = None, **options: str) -> Derivation:
        """The derivation of a model at these sizes (default: its own)."""
        spec = _spec(model)
        at = {} if spec.sizes(sizes or {}) == spec.sizes() else sizes or {}
        key = _key(model, at, options)
        if key not in self._derived:
            self.progress(f"deriving {' '.join(key)}")
            self._derived[key] = derive(spec, at, options=made(**options))
        return self._derived[key]

    def check(self, model: str, sizes: Mapping[str, int], **options: str) -> Report:
        """The check of a model's step at these sizes: a real run compared with the derivation."""
        key = _key(model, sizes, options)
        if key not in self._checked:
            derivation = self.derive(model, None, **options)
            self.progress(f"running {' '.join(key)}")
            sizes_: Any = dict(sizes)  # sizes by name, which mypy takes for the other keywords
            self._checked[key] = check(derivation, **sizes_)
        return self._checked[key]

    def gradients(self, model: str) -> tuple[Derived, Checked]:
        """(gradient equations of a model, their comparison with autograd)."""
        if model not in self._differentiated:
            self.progress(f"differentiating {model}")
            derived = gradients(_spec(model))
            self._differentiated[model] = derived, check_gradients(derived, _spec(model))
        return self._differentiated[model]

    def inference(self, model: str, sizes: Mapping[str, int], weights: str) -> Inference:
        """The weights and the KV cache of a model at these sizes, with its weights in a number format."""
        key = (*_key(model, sizes, {}), weights)
        if key not in self._used:
            self.progress(f"weights, keys and values of {' '.join(key)}")
            self._used[key] = inference(load(model), dict(sizes), weights_in=weights)
        return self._used[key]

    def read_each_token(self, model: str, sizes: Mapping[str, int], weights: str) -> int:
        """Bytes of weights read for one token: all weights except embedding tables, of which it reads a row."""
        return sum(line.value for line in self.inference(model, sizes, weights).weights.lines if not line.looked_up)

    def value(self, model: str, quantity: str, sizes: Mapping[str, int], **options: str) -> int:
        """The value of a quantity at these sizes, by the closed form derived at the default sizes."""
        return int(self.derive(model, None, **options)[quantity].at(**dict(sizes)))  # without its unit: claims state bare numbers


def _spec(model: str) -> Spec:
    return own_spec(model) or load(model)


def _key(model: str, sizes: Mapping[str, int], options: Mapping[str, str]) -> tuple[str, ...]:
    """The model, its sizes and the options that differ from the defaults, as a key."""
    usual = made().to_json()
    changed = {name: value for name, value in made(**options).to_json().items() if value != usual.get(name)}
    return model, *(f"{name}={value}" for name, value in (*sizes.items(), *changed.items()))
