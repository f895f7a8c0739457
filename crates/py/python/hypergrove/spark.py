"""Data frames of Spark: `verify`, `sign` and `sha256`, by `mapInArrow`. Each executor needs this package.

A task's engine has as many threads as Spark gave the task CPUs, and the GPUs that Spark gave it. The process of a Python worker keeps
its engine for later tasks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Unpack

from . import Engine, arrow
from ._engines import Key, KeySource, load, unseen
from .arrow import SignOptions, VerifyOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["sha256", "sign", "verify"]


@unseen
def verify(frame: DataFrame, **options: Unpack[VerifyOptions]) -> DataFrame:
    """Appends a Boolean column, `valid`: is the row's signature valid? The options are those of `hypergrove.arrow.verify`."""
    # Names and options are checked here rather than in a task, which Spark would try several times.
    schema = load("pyspark.sql.pandas.types").to_arrow_schema(frame.schema)
    arrow.verify(schema.empty_table(), **options)
    columns = {options.get("output", "valid"): "boolean"}
    if status := options.get("status"):
        columns[status] = "string"
    return _map(frame, functools.partial(arrow.verify, **options), columns)


@unseen
def sign(frame: DataFrame, *, key: KeySource, **options: Unpack[SignOptions]) -> DataFrame:
    """Appends a binary column, `signature`. The options are those of `hypergrove.arrow.sign`.

    `key` is a path that each executor can read, or a function that each worker calls: no private key leaves the worker.
    """
    work = functools.partial(arrow.sign, key=Key.of(key), **options)
    return _map(frame, work, {options.get("output", "signature"): "binary"})


@unseen
def sha256(frame: DataFrame, *, message: str = "message", output: str = "sha256") -> DataFrame:
    """Appends a binary column, `sha256`, with the SHA-256 sums of messages."""
    return _map(frame, functools.partial(arrow.sha256, message=message, output=output), {output: "binary"})


def _map(frame: Any, work: Callable[..., Any], columns: dict[str, str]) -> Any:
    """The frame with what `work` appends."""
    types = load("pyspark.sql.types")
    # A list of its own: the frame's must not change.
    schema = types.StructType(list(frame.schema.fields))
    for column in columns.items():
        schema = schema.add(*column)

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        engine = _task_engine()
        for batch in batches:
            yield _for_spark(work(batch, engine=engine))

    return frame.mapInArrow(rows, schema)


def _for_spark(batch: Any) -> Any:
    """Spark has no binary columns of fixed width."""
    arrow = load("pyarrow")
    fields = [
        field.with_type(arrow.binary()) if arrow.types.is_fixed_size_binary(field.type) else field for field in batch.schema
    ]
    return batch.cast(arrow.schema(fields))


def _task_engine() -> Engine:
    """The engine of the task that runs here."""
    task = load("pyspark").TaskContext.get()
    gpus = task.resources().get("gpu") if task else None
    devices = tuple(f"cuda:{address}" for address in gpus.addresses) if gpus else ("cpu",)
    return _engine(devices, task.cpus() if task else None)


@functools.cache
def _engine(devices: tuple[str, ...], threads: int | None) -> Engine:
    return Engine(devices=devices, threads=threads)
