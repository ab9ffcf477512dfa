"""Runs of a class at small sizes, whose values do not matter. They show what no config says: which sizes fit together, where positions
begin, whether padding makes a difference."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calc.dimensions import Dim, resolve
from calc.errors import DimensionError
from calc.models.hf.dimensions import ConfigLayout
from calc.models.hf.feeds import MASKS, stated
from calc.models.hf.layers import without_memory
from calc.models.hf.positions import begins_after_padding
from calc.models.hf.source import Source, module_class, quiet, symbolic_sizes_accepted
from calc.models.hf.tasks import Task
from calc.spec import Sizes

# Most bytes of parameters and buffers: a table of positions is as large as the config says.
_MOST_BYTES = 2**32
# Most elements of inputs with memory: a forward of a picture of five million pixels takes minutes.
_MOST_ELEMENTS = 4_000_000
_BYTES = 256


@dataclass(frozen=True, slots=True)
class Trials:
    """Runs of the class of ``source``; the sizes of a run are values of ``dims``, which ``layout`` writes into fields of the config."""

    source: Source
    task: Task
    layout: ConfigLayout
    dims: Mapping[str, Dim]
    config: Any

    def related(self, changed: Mapping[str, Dim]) -> Trials:
        """Runs at the sizes that ``changed`` dimensions allow."""
        return replace(self, dims={**self.dims, **changed})

    @property
    def small(self) -> dict[str, int]:
        """A short batch."""
        return self.task.small(self.config)

    @property
    def own_sizes(self) -> dict[str, int]:
        """The sizes of the config; empty if they do not fit together."""
        try:
            return resolve(self.dims, {})
        except DimensionError:
            return {}

    def parameters(self, sizes: Mapping[str, int]) -> int:
        """Parameters of the class at all ``sizes``."""
        module = without_memory(self.source, self.source.config(self.layout.changes(Sizes(**sizes))))
        return sum(p.numel() for p in module.parameters())

    def elements_fed(self, sizes: Mapping[str, int]) -> int:
        """Elements of the inputs at these sizes."""
        n = Sizes(**resolve(self.dims, sizes))
        return sum(tensor.numel() for tensor in self.task.inputs(n, getattr(n, "V", 1), self.source.config(self.layout.changes(n))))

    def runs(self, sizes: Mapping[str, int]) -> bool:
        """Whether the class's forward runs at these sizes: some need a width that is a product of others, or heads that groups divide."""

        def run(module: Any, inputs: Sequence[Any]) -> bool:
            self.task.predict(module, *inputs)
            return True

        # A forward that reads data, which a run without memory has none of, came so far: the sizes fit.
        return self._outcome(sizes, run, lambda error: "on meta tensors" in str(error))

    def begins_after_padding(self, sizes: Mapping[str, int]) -> bool:
        """Whether the class has no token at the row for padding of its table of positions. True if it does not run at these sizes."""

        def run(module: Any, inputs: Sequence[Any]) -> bool:
            n = Sizes(**resolve(self.dims, sizes))
            return begins_after_padding(
                module, n.C, getattr(n, "T", None) or n.S, lambda token: self.task.predict(module, *_filled(inputs, token))
            )

        return self._outcome(sizes, run, lambda _: True)

    def heeds_padding(self, sizes: Mapping[str, int]) -> bool:
        """Whether a class that reads and writes tokens runs other operators where these are padding, if it is given no masks."""
        masks = {MASKS[name][0] for name in self.task.used if name in MASKS}
        arguments = inspect.signature(module_class(self.source).forward).parameters

        def run(module: Any, inputs: Sequence[Any]) -> bool:
            padding, tokens = (self._operators(module, _filled(inputs, token)) for token in (0, 1))
            return padding != tokens

        return "decoder_input_ids" in self.task.used and masks <= arguments.keys() and self._outcome(sizes, run, lambda _: False)

    def _operators(self, module: Any, inputs: Sequence[Any]) -> list[str]:
        """The names of the operators that a forward runs."""
        from calc.platform.operator_names import OperatorNames

        seen = OperatorNames()
        with seen:
            self.task.predict(module, *inputs)
        return seen.names

    def _outcome(
        self, sizes: Mapping[str, int], run: Callable[[Any, Sequence[Any]], bool], failed: Callable[[Exception], bool]
    ) -> bool:
        """What ``run`` says of the module and its inputs; what ``failed`` says of the error if the class does not run at these sizes."""
        import torch

        from calc.experiment.threads import one_thread

        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]), one_thread():
                return run(*self._trial(Sizes(**resolve(self.dims, sizes))))
        except Exception as error:  # the class may raise anything at sizes that it does not support
            return failed(error)

    def _trial(self, n: Sizes) -> tuple[Any, Sequence[Any]]:
        """The module and its inputs, without memory where these are large. Raises ``MemoryError`` where the module is."""
        config = self.source.config(self.layout.changes(n))
        module = without_memory(self.source, config)
        if sum(tensor.nbytes for tensor in itertools.chain(module.parameters(), module.buffers())) > _MOST_BYTES:
            raise MemoryError
        inputs = self.task.inputs(n, getattr(n, "V", vocabulary_of(module, config)), config)
        if sum(tensor.numel() for tensor in inputs) > _MOST_ELEMENTS:
            return module.train(), [tensor.to("meta") for tensor in inputs]
        with _zeros_for_random_numbers():
            return trainable(self.source, config), inputs


def _filled(inputs: Sequence[Any], token: int) -> list[Any]:
    """``inputs`` with one value throughout: a patch of zeros is padding, as a token 0 may be."""
    import torch

    return [torch.full_like(tensor, token) for tensor in inputs]


@contextlib.contextmanager
def _zeros_for_random_numbers() -> Iterator[None]:
    """Context in which weights are initialized to zeros: those of a tower at full width take seconds to draw."""
    import torch

    def zeroed(tensor: Any, *_: Any, **__: Any) -> Any:
        return tensor.zero_()

    drawn = ("normal_", "uniform_")
    for name in drawn:
        setattr(torch.Tensor, name, zeroed)
    try:
        yield
    finally:
        for name in drawn:
            delattr(torch.Tensor, name)  # those of its base class are visible again


def build(source: Source, layout: ConfigLayout, n: Any) -> Any:
    """``cls(config)`` in training mode, with the fields of its dimensions at the given sizes; the class computes the other fields."""
    return trainable(source, source.config(layout.changes(n)))


def trainable(source: Source, config: Any) -> Any:
    """``cls(config)`` in training mode, with memory."""
    with quiet(), symbolic_sizes_accepted():
        return module_class(source)(config).train()


def vocabulary_of(module: Any, config: Any) -> int:
    """The vocabulary size where it is not a dimension: the rows of the input embedding, else ``vocab_size`` of the config, else that of
    bytes: a class without either takes characters, whatever their number."""
    try:
        return int(module.get_input_embeddings().num_embeddings)
    except (AttributeError, NotImplementedError):
        return int(stated(config, "vocab_size", _BYTES))
