"""Datasets of Ray: `verify`, `sign` and `sha256`, by `map_batches`.

On CPUs, `verify` and `sha256` are tasks, which Ray runs in one process with the tasks that read: no block travels between them. Actors
hold what is worth holding: GPUs, and private keys. Tasks that read and write take a whole CPU each, and `plan` leaves them one on any
cluster. Each node needs this package.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, cast

from . import Engine, arrow
from ._engines import Key, KeySource, load, unseen
from .arrow import SignOptions, VerifyOptions

if TYPE_CHECKING:
    from ray.data import Dataset

__all__ = ["Plan", "plan", "sha256", "sign", "verify"]


class Plan(NamedTuple):
    """Actors at most, threads of an actor's engine, and what Ray reserves for an actor."""

    workers: int
    threads: int
    num_cpus: float
    num_gpus: float


class Workers(TypedDict, total=False):
    """What a caller can choose for tasks and actors: the most of them, the rest of `Plan`, and the rows of a batch."""

    workers: int
    threads: int
    num_cpus: float
    num_gpus: float
    batch_size: int | None


class RayVerifyOptions(VerifyOptions, Workers, total=False):
    """The options of `verify`."""


class RaySignOptions(SignOptions, Workers, total=False):
    """The options of `sign`."""


@unseen
def verify(dataset: Dataset, **options: Unpack[RayVerifyOptions]) -> Dataset:
    """Appends a Boolean column, `valid`: is the row's signature valid? The options are those of `hypergrove.arrow.verify` and of
    `Workers`.

    A batch is a block of the dataset, which Ray does not copy. `batch_size` is another number of rows.
    """
    return _map(dataset, arrow.verify, cast(dict[str, Any], options))


@unseen
def sign(dataset: Dataset, *, key: KeySource, **options: Unpack[RaySignOptions]) -> Dataset:
    """Appends a column, `signature`. The options are those of `hypergrove.arrow.sign` and of `Workers`.

    `key` is a path that each node can read, or a function that each actor calls: no private key leaves the actor. A batch has 4,096
    rows, or `batch_size`.
    """
    work = functools.partial(arrow.sign, key=Key.of(key))
    # A block is what one actor gets: a block of 128 MiB of messages would keep one actor busy for hours.
    blocks = dataset.repartition(target_num_rows_per_block=options.get("batch_size") or 4096)
    return _map(blocks, work, {**options, "batch_size": None}, has_key=True)


@unseen
def sha256(dataset: Dataset, *, message: str = "message", output: str = "sha256", **workers: Unpack[Workers]) -> Dataset:
    """Appends a column, `sha256`, with the SHA-256 sums of messages. The options are those of `Workers`."""
    return _map(dataset, functools.partial(arrow.sha256, message=message, output=output), cast(dict[str, Any], workers))


def plan(nodes: Iterable[Mapping[str, float]], num_gpus: float | None = None) -> Plan:
    """The actors for nodes with these resources. `num_gpus` is of an actor: 0 leaves the GPUs alone, and a half shares each.

    An actor reserves an eighth of the CPUs that its engine uses, because tasks that read cannot use what an actor has reserved. The
    operating system shares the cores between both. On nodes of one CPU, an actor reserves nothing.
    """
    sizes = [(node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in nodes]
    if num_gpus is None:
        num_gpus = min(1.0, max((gpus for _, gpus in sizes), default=0.0))
    if num_gpus > 0:
        places = [(cpus, int(gpus / num_gpus + 1e-6)) for cpus, gpus in sizes if gpus + 1e-6 >= num_gpus]
        if not places and (most := max((gpus for _, gpus in sizes), default=0.0)):
            raise ValueError(f"num_gpus: {num_gpus:g}; no node has so many, the largest has {most:g}")
        threads = max(1, int(min((cpus / count for cpus, count in places), default=4)))
    else:
        several = [cpus for cpus, _ in sizes if cpus >= 2] or [cpus for cpus, _ in sizes if cpus >= 1]
        # Several actors of a large node copy their blocks at the same time.
        threads = int(min([4, *several]))
        places = [(cpus, int(cpus / threads)) for cpus in several]
    # Actors of two calls, on each node, leave a whole CPU.
    reserved = max(0.0, min([threads / 8, *((cpus - 1) / (2 * count) for cpus, count in places)]))
    return Plan(max(1, sum(count for _, count in places)), threads, reserved, num_gpus)


def _task(batch: Any, work: Callable[..., Any], threads: int) -> Any:
    """What a task calls."""
    return work(batch, engine=_engine(threads))


@functools.cache
def _engine(threads: int) -> Engine:
    """The engine of a process that runs tasks."""
    return Engine(devices="cpu", threads=threads)


class _Actor:
    def __init__(self, work: Callable[..., Any], threads: int) -> None:
        gpus = load("ray").get_runtime_context().get_accelerator_ids().get("GPU", [])
        self._work = work
        self._engine = Engine(devices=_devices(gpus, os.environ.get("CUDA_VISIBLE_DEVICES")), threads=threads)

    def __call__(self, batch: Any) -> Any:
        return self._work(batch, engine=self._engine)


def _devices(gpus: Sequence[str], visible: str | None) -> list[str]:
    """An engine's devices, by the GPUs that Ray gave an actor: numbers, or UUIDs as nvidia-smi writes them.

    CUDA counts from 0 what the variable CUDA_VISIBLE_DEVICES lists. Ray sets this variable for an actor, unless it is forbidden to.
    """
    # An engine knows a GPU by eight digits of its UUID.
    numbers = {gpu: number for number, gpu in enumerate((visible or "").split(",")) if not gpu.startswith("GPU-") or len(gpu) < 12}
    return [f"cuda:{numbers.get(gpu, gpu)}" for gpu in map(str, gpus)] or ["cpu"]


def _map(dataset: Any, work: Callable[..., Any], options: dict[str, Any], has_key: bool = False) -> Any:
    """The dataset with what `work` appends."""
    chosen = {name: options.pop(name) for name in Workers.__annotations__ if name in options}
    work = functools.partial(work, **options)
    # Rows stay rows, so a limit of them can be moved before this.
    how = {"batch_format": "pyarrow", "zero_copy_batch": True, "udf_modifying_row_count": False}
    how["batch_size"] = chosen.pop("batch_size", None)
    planned = plan((node["Resources"] for node in load("ray").nodes() if node["Alive"]), chosen.get("num_gpus"))
    if not (planned.num_gpus or has_key):
        how["compute"] = load("ray.data").TaskPoolStrategy(chosen.get("workers"))
        threads, num_cpus = chosen.get("threads", 1), chosen.get("num_cpus")
        return dataset.map_batches(_task, fn_args=(work, threads), num_cpus=num_cpus, **how)
    planned = planned._replace(**chosen)
    how["compute"] = load("ray.data").ActorPoolStrategy(min_size=1, max_size=planned.workers)
    how |= {"num_cpus": planned.num_cpus, "num_gpus": planned.num_gpus or None}
    return dataset.map_batches(_Actor, fn_constructor_args=(work, planned.threads), **how)
