"""Expressions of Polars: `verify`, `sign` and `sha256`, in eager, lazy and streaming queries.

>>> import polars as pl
>>> pl.DataFrame({"message": [b"one", None]}).select(sha256("message").bin.encode("hex").str.head(8)).to_series().to_list()
['7692c3ad', None]

The expressions are elementwise, so the streaming engine calls them with one part of the rows after another. Polars is imported when a
function is called; pyarrow is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from . import Engine, PublicKey, sha256_batch
from ._engines import Key, KeySource, load, verify_rows

if TYPE_CHECKING:
    import polars as pl

    # A column's name, or an expression.
    Column: TypeAlias = str | pl.Expr

__all__ = ["sha256", "sign", "verify"]


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

    columns = [] if isinstance(public_key, PublicKey) else [public_key]
    return _expression([signature, message, *columns], verdicts, "Boolean", "valid")


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

    return _expression([message], signatures, "Binary", "signature")


def sha256(message: Column = "message", *, engine: Engine | None = None) -> pl.Expr:
    """SHA-256 sums of messages: a Binary column `sha256`."""

    def sums(messages: Any) -> Any:
        return sha256_batch(messages, nulls="propagate", engine=engine)

    return _expression([message], sums, "Binary", "sha256")


def _expression(inputs: Sequence[Column], function: Callable[..., Any], kind: str, name: str) -> pl.Expr:
    """An elementwise expression that calls a function with one series for each input."""
    polars = load("polars")

    def call(columns: Sequence[Any]) -> Any:
        # A literal is a series of one row.
        rows = next((len(column) for column in columns if len(column) != 1), 1)
        whole = [column if len(column) == rows else column.new_from_index(0, rows) for column in columns]
        # A column of nothing but null has no type of bytes.
        whole = [column.cast(polars.Binary) if column.dtype == polars.Null else column for column in whole]
        return polars.Series(name, function(*whole), dtype=getattr(polars, kind))

    return polars.map_batches(inputs, call, return_dtype=getattr(polars, kind), is_elementwise=True).alias(name)
