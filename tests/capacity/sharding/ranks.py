"""A training step on several ranks, with torch's own ways of dividing it: what each rank holds and what its collectives are of.

A rank is one of a fake process group, which runs every operator on sizes that are real and communicates nothing, or one of several real
processes (gloo). Bytes are those of storages; collectives are seen by a dispatch mode below DTensor.
"""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ParallelStyle, loss_parallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from calc.errors import MeasurementError

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL = "all-reduce", "all-gather", "reduce-scatter", "all-to-all"
SEND = "point to point"
T = TypeVar("T", covariant=True)
# Names of collectives in torch's two sets of operators. What is not here and moves data is refused.
_KINDS = {
    "allreduce_": ALL_REDUCE, "all_reduce": ALL_REDUCE, "all_reduce_": ALL_REDUCE,
    "_allgather_base_": ALL_GATHER, "allgather_": ALL_GATHER, "all_gather_into_tensor": ALL_GATHER,
    "_reduce_scatter_base_": REDUCE_SCATTER, "reduce_scatter_tensor": REDUCE_SCATTER,
    "alltoall_base_": ALL_TO_ALL, "all_to_all_single": ALL_TO_ALL, "send": SEND,
}  # fmt: skip
_NO_TRAFFIC = ("wait_tensor", "_wrap_tensor_autograd", "barrier", "recv_")  # what is received is counted where it is sent


@dataclass(frozen=True, slots=True)
class Job:
    """What is run. ``build`` gives a module, its inputs and its loss; other processes are given it by its name in a file.

    Of several ``micro_batches`` a step, gradients are exchanged as the way to divide has it: by DDP with the last one only, by FSDP2 with
    each; weights that FSDP2 keeps between forward and backward stay until the last one.
    """

    build: Callable[[], tuple[nn.Module, tuple[Tensor, ...], Callable[..., Tensor]]]
    divide: Callable[[nn.Module, DeviceMesh], nn.Module]
    optimizer: Callable[[Iterable[Tensor]], torch.optim.Optimizer]
    divided_loss: bool = False
    micro_batches: int = 1

    def measured(self, rank: int, world: int) -> Held:
        """The third step of one rank, whose process group is there."""
        return _steady_step(self, rank, world)


class Measured(Protocol[T]):
    """What each rank of several processes can be asked for."""

    def measured(self, rank: int, world: int) -> T: ...


@dataclass(frozen=True, slots=True)
class Held:
    """What one rank held and sent in its third step, in bytes. ``payload`` is what its collectives were of, whole, by kind; parameters and
    gradients are storages, filling included; of optimizer state it is what is used."""

    rank: int
    parameters: int
    gradients: int
    optimizer: int
    saved: int
    payload: Mapping[str, int]
    calls: Mapping[str, int]
    rows: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


# -- ways to divide: torch's own ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FullyShard:
    """FSDP2 on each of the modules ``units`` finds, then on the whole. ``again``: weights are gathered for the backward again (ZeRO-3)."""

    units: Callable[[nn.Module], Iterable[nn.Module]]
    again: bool = True

    def __call__(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        again = None if self.again else False  # None is torch's own choice: again, but for the outermost
        for unit in self.units(module):
            fully_shard(unit, mesh=mesh, reshard_after_forward=again)
        fully_shard(module, mesh=mesh, reshard_after_forward=again)
        return module


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """``parallelize_module`` by a plan for the whole and one for each of the modules ``units`` finds."""

    units: Callable[[nn.Module], Iterable[nn.Module]]
    outer: Callable[[], Mapping[str, ParallelStyle]]
    inner: Callable[[], Mapping[str, ParallelStyle]]

    def __call__(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        parallelize_module(module, mesh, dict(self.outer()))
        for unit in self.units(module):
            parallelize_module(unit, mesh, dict(self.inner()))
        return module


@dataclass(frozen=True, slots=True)
class Both:
    """Tensor parallelism within each row of a mesh of ``data`` rows, FSDP2 across them."""

    data: int
    tensor_parallel: TensorParallel
    fully_shard: FullyShard

    def __call__(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        both = init_device_mesh("cpu", (self.data, mesh.size() // self.data), mesh_dim_names=("data", "tensor"))
        return self.fully_shard(self.tensor_parallel(module, both["tensor"]), both["data"])


class Replicated:
    """DDP, whose gradients are parts of the buckets that are summed."""

    def __call__(self, module: nn.Module, mesh: DeviceMesh) -> nn.Module:
        return nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)


# -- instruments --------------------------------------------------------------------------------------------------------------


class Traffic(TorchDispatchMode):
    """Bytes of collectives by kind: of the whole tensor, so of what goes in for a reduction and of what comes out of a gathering."""

    def __init__(self) -> None:
        super().__init__()
        self.payload: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its own dispatch comes first; collectives on its parts come back here
        out = func(*args, **(kwargs or {}))
        if "c10d" in func.namespace:
            self._count(func, args, out)
        return out

    def _count(self, func: Any, args: Any, out: Any) -> None:
        name = func._overloadpacket.__name__
        if name in _NO_TRAFFIC:
            return
        if name not in _KINDS:
            raise MeasurementError(f"the collective {name} is none whose bytes are known here")
        sizes = [t.numel() * t.element_size() for t in tree_leaves((args, out)) if isinstance(t, Tensor)]
        kind = SEND if name == "all_to_all_single" and _to_one(args[2]) else _KINDS[name]
        self.payload[kind] += max(sizes)
        self.calls[kind] += 1


def _to_one(parts: Sequence[int]) -> bool:
    """Whether an all-to-all of such parts has one receiver: torch's way to pass a block on in a ring."""
    return len(parts) > 1 and sum(part > 0 for part in parts) == 1


def _seen(module: nn.Module) -> None:
    """The reducer of DDP calls its collective from C++, below every mode: here the same one is called from Python."""
    if not isinstance(module, nn.parallel.DistributedDataParallel):
        return

    def reduce(_, bucket):
        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])

    module.register_comm_hook(None, reduce)


def _local(tensor: Tensor) -> Tensor:
    """The part that this rank has, waited for where it is still on its way."""
    part = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
    return part.wait() if isinstance(part, AsyncCollectiveTensor) else part


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of distinct storages: of what is allocated, filling included."""
    storages = {s.data_ptr() or id(s): s.nbytes() for s in (_local(t).untyped_storage() for t in tensors)}
    return sum(storages.values())


def _elements_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(_local(t).numel() * t.element_size() for t in tensors)


class _Packed:
    """What autograd keeps in place of a tensor: alive exactly as long as autograd keeps it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


# -- running ------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def fake_group(rank: int, world: int) -> Iterator[None]:
    """One rank of a process group that does not communicate."""
    if dist.is_initialized():
        raise MeasurementError("a process group is running already: end it before ranks are measured")
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def on_fake_ranks(job: Job, ranks: Iterable[int], world: int) -> list[Held]:
    """Each of the ranks in turn, in this process."""
    per_rank = []
    for rank in ranks:
        with fake_group(rank, world):
            per_rank.append(job.measured(rank, world))
    return per_rank


def on_processes(job: Measured[T], world: int) -> list[T]:
    """All ranks in their order, each a process of its own, over gloo."""
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("spawn")
        queue = context.SimpleQueue()
        started = [context.Process(target=_process, args=(job, rank, world, folder, queue)) for rank in range(world)]
        for process in started:
            process.start()
        answers = [queue.get() for _ in started]
        for process in started:
            process.join()
    failed = [why for _, why, _ in answers if why]
    if failed:
        raise MeasurementError(f"a rank failed: {failed[0]}")
    return [result for _, _, result in sorted(answers, key=lambda item: item[0])]


def _process(job: Measured[Any], rank: int, world: int, folder: str, queue: Any) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        store = dist.FileStore(str(Path(folder) / "store"), world)
        dist.init_process_group("gloo", rank=rank, world_size=world, store=store)
        queue.put((rank, "", job.measured(rank, world)))
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:  # whatever it was, the parent waits for an answer
        queue.put((rank, f"{type(error).__name__}: {error}"[:500], None))


def _steady_step(job: Job, rank: int, world: int) -> Held:
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world,))
    module, inputs, loss = job.build()
    traffic = Traffic()
    module = job.divide(module, mesh)
    _seen(module)
    optimizer = job.optimizer(module.parameters())
    for _ in range(2):  # DDP arranges its buckets anew after the first
        _step(job, module, inputs, loss, optimizer)
    with traffic:
        saved, gradients, rows = _step(job, module, inputs, loss, optimizer)
    state = [t for buffers in optimizer.state.values() for t in buffers.values() if isinstance(t, Tensor)]
    parameters = list(module.parameters())
    memory = (_bytes(parameters), gradients, _elements_bytes(state), saved)
    return Held(rank, *memory, dict(traffic.payload), dict(traffic.calls), rows)


def _say_whether_last(job: Job, module: nn.Module, last: bool) -> None:
    """Of a step's micro-batches."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        module.require_backward_grad_sync = last
    elif isinstance(module, FSDPModule) and isinstance(job.divide, FullyShard) and not job.divide.again:
        module.set_reshard_after_backward(last)


def _step(
    job: Job, module: nn.Module, inputs: tuple[Tensor, ...], loss: Callable[..., Tensor], optimizer: torch.optim.Optimizer
) -> tuple[int, int, dict[str, tuple[int, ...]]]:
    """One step; bytes kept for its backward, of gradients, and the local shape of every parameter."""
    packed: weakref.WeakSet[_Packed] = weakref.WeakSet()

    def pack(tensor: Tensor) -> _Packed:
        held = _Packed(tensor.detach() if tensor.requires_grad else tensor)
        packed.add(held)
        return held

    with loss_parallel() if job.divided_loss else contextlib.nullcontext():
        for _ in range(job.micro_batches - 1):
            _say_whether_last(job, module, last=False)
            loss(module, *inputs).backward()
        _say_whether_last(job, module, last=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda held: held.tensor):
            value = loss(module, *inputs)
        gc.collect()
        own = {_local(p).untyped_storage().data_ptr() for p in module.parameters()}
        locals_ = (_local(held.tensor).untyped_storage() for held in packed)
        saved = sum({s.data_ptr(): s.nbytes() for s in locals_ if s.data_ptr() not in own}.values())
        value.backward()
    grads = [p.grad for p in module.parameters() if p.grad is not None]
    gradients = _bytes(grads)
    rows = {name: tuple(_local(p).shape) for name, p in module.named_parameters()}
    optimizer.step()
    optimizer.zero_grad()
    return saved, gradients, rows
