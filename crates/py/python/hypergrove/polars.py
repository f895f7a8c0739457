"""Expressions of Polars: `verify`, `sign` and `sha256`, in eager, lazy and streaming queries.

>>> import polars as pl
>>> pl.DataFrame({"message": [b"one", None]}).select(sha256("message").bin.encode("hex").str.head(8)).to_series().to_list()
['7692c3ad', None]

The expressions of columns are elementwise, so the streaming engine calls them with one part of the rows after another. Where a column may
have a length of its own, such as `pl.col("message").head(2)`, they get whole columns, and different lengths are an error. Polars is
imported when a function is called; pyarrow is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from . import Engine, PublicKey, sha256_batch
from ._engines import Key, KeySource, check_column, load, shown_column, unseen, verify_rows

if TYPE_CHECKING:
    import polars as pl

    # A column's name, or an expression.
    Column: TypeAlias = str | pl.Expr

__all__ = ["sha256", "sign", "verify"]


@unseen
def verify(
    signature: Column = "signature",
    message: Column = "message",
    public_key: Column | PublicKey = "public_key",
    *,
    set: str | None = None,
    context: bytes = b"",
    prehash: str | None = None,
    engine: Engine | None = None,
) -> pl.Expr:
    """Is the row's signature valid? A Boolean column `valid`, or what `.alias` calls it.

    A column of raw public keys needs `set`, the parameter set. The verdict is null where a value is null or where a public key cannot
    be one, for example because of its length.
    """

    def verdicts(signatures: Any, messages: Any, keys: Any = public_key) -> Any:
        return verify_rows(keys, signatures, messages, set=set, context=context, prehash=prehash, engine=engine)

    columns = {"signature": signature, "message": message}
    if not isinstance(public_key, PublicKey):
        columns["public_key"] = public_key
    return _expression(columns, verdicts, "Boolean", "valid")


@unseen
def sign(
    message: Column = "message",
    *,
    key: KeySource,
    context: bytes = b"",
    prehash: str | None = None,
    deterministic: bool = False,
    engine: Engine | None = None,
) -> pl.Expr:
    """Signatures of messages: a Binary column `signature`. `key` is what it is for `hypergrove.arrow.sign`."""
    source = Key.of(key)

    def signatures(messages: Any) -> Any:
        return source.get().sign_batch(
            messages, context=context, prehash=prehash, deterministic=deterministic, nulls="propagate", engine=engine
        )

    return _expression({"message": message}, signatures, "Binary", "signature")


@unseen
def sha256(message: Column = "message", *, engine: Engine | None = None) -> pl.Expr:
    """SHA-256 sums of messages: a Binary column `sha256`."""

    def sums(messages: Any) -> Any:
        return sha256_batch(messages, nulls="propagate", engine=engine)

    return _expression({"message": message}, sums, "Binary", "sha256")


def _expression(columns: Mapping[str, Column], function: Callable[..., Any], kind: str, name: str) -> pl.Expr:
    """An expression that calls a function with one series for each column. The columns have one length; only literals and scalars are
    repeated for each row."""
    polars = load("polars")
    for what, column in columns.items():
        if isinstance(column, str):
            check_column(column, what)
        elif not isinstance(column, (polars.Expr, polars.Series)):
            # Polars quotes literals in its errors.
            raise TypeError(f"{what}: {type(column).__name__}; give the name of a column, or an expression")
    inputs = [polars.col(column) if isinstance(column, str) else column for column in columns.values()]
    inputs = [column if isinstance(column, polars.Expr) else polars.lit(column) for column in inputs]
    is_one = [_known(column, "is_scalar") or _known(column, "is_literal", allow_aliasing=True) for column in inputs]
    # Polars repeats a column of one row before it calls an elementwise function, or a result of one row after the call: the streaming engine for
    # any column, and both engines where they filter. So an expression is elementwise only where no column can have a length of its own.
    # Otherwise the function gets whole columns and the number of rows, and compares the lengths.
    keeps_rows = [_known(column, "is_scalar") or _known(column, "is_length_preserving") for column in inputs]
    is_elementwise = all(keeps_rows)

    @unseen
    def call(given: Sequence[Any]) -> Any:
        series = given[: len(inputs)]
        lengths = [len(column) for column in series]
        rows = next((length for length, one in zip(lengths, is_one, strict=True) if not one), max(lengths))
        height = rows if is_elementwise else max(given[-1], default=0)
        is_repeated = rows == 1 != height and not all(is_one)
        if is_repeated or any(length != rows and not (one and length == 1) for length, one in zip(lengths, is_one, strict=True)):
            names = (_known(column, "output_name", raise_if_undetermined=False) for column in inputs)
            counts = [f"{what} ({name and shown_column(name)}) has {length}" for what, name, length in zip(columns, names, lengths, strict=True)]
            raise ValueError(
                f"columns of different lengths: of the {height} rows, {', '.join(counts)}; filter the whole frame before, rather than a column. "
                "Only a literal or a scalar, such as col(…).first(), is repeated for each row"
            )
        whole = [column if len(column) == rows else column.new_from_index(0, rows) for column in series]
        # A column of nothing but null has no type of bytes.
        whole = [column.cast(polars.Binary) if column.dtype == polars.Null else column for column in whole]
        # Of Arrow alone: as a sequence, Polars would take the rows one by one.
        result = SimpleNamespace(__arrow_c_array__=function(*whole).__arrow_c_array__)
        return polars.Series(result).alias(name)

    arguments = inputs if is_elementwise else [*inputs, polars.len()]
    return polars.map_batches(arguments, call, return_dtype=getattr(polars, kind), is_elementwise=is_elementwise).alias(name)


def _known(column: pl.Expr, what: str, **options: bool) -> Any:
    """What Polars knows of an expression before it knows the frame. Of Python's functions and of selectors it knows nothing: None."""
    try:
        return getattr(column.meta, what)(**options)
    except load("polars").exceptions.PolarsError:
        return None
