"""Tables of pyarrow: `verify`, `sign` and `sha256` return a RecordBatch or a Table with one more column.

The modules `hypergrove.polars`, `duckdb`, `spark` and `ray` call the same functions inside of these engines. docs/tables.md of the
repository has an example of each. pyarrow is imported when a function is called.
"""

from typing import Any, TypedDict, TypeVar, cast

from . import Engine, PublicKey, sha256_batch
from ._engines import Key, KeySource, check_column, load, shown_column, unseen, verify_rows
from ._hypergrove import _quote, _quote_path

__all__ = ["KeySource", "SignOptions", "VerifyOptions", "sha256", "sign", "verify"]

Batch = TypeVar("Batch")
"""A `pyarrow.RecordBatch` or a `pyarrow.Table`."""


class VerifyOptions(TypedDict, total=False):
    """The options of `verify` that all engines have."""

    signature: str
    message: str
    public_key: str | PublicKey
    set: str | None
    context: bytes
    prehash: str | None
    output: str
    status: str | None


class SignOptions(TypedDict, total=False):
    """The options of `sign` that all engines have."""

    message: str
    context: bytes
    prehash: str | None
    deterministic: bool
    output: str


@unseen
def verify(
    batch: Batch,
    *,
    signature: str = "signature",
    message: str = "message",
    public_key: str | PublicKey = "public_key",
    set: str | None = None,
    context: bytes = b"",
    prehash: str | None = None,
    output: str = "valid",
    status: str | None = None,
    engine: Engine | None = None,
) -> Batch:
    """Appends the Boolean column `output`: is the row's signature valid?

    `signature`, `message` and `public_key` name columns. `public_key` can be one PublicKey for all rows. A column of raw keys needs
    `set`, the parameter set. A row that lacks a value gets null, and so does a row whose public key cannot be one, for example because
    of its length. `status` names a second new column, which says why a verdict is null.
    """
    keys = public_key if isinstance(public_key, PublicKey) else _column(batch, public_key, "public_key")
    signatures, messages = _column(batch, signature, "signature"), _column(batch, message, "message")
    _check_new(batch, output, "output")
    verdicts = verify_rows(keys, signatures, messages, set=set, context=context, prehash=prehash, engine=engine)
    table = _append(batch, output, verdicts)
    if status is None:
        return table
    _check_new(table, status, "status")
    reasons: list[str | None] = [None] * len(verdicts)
    for row, reason in verdicts.reasons():
        reasons[row] = reason
    return _append(table, status, reasons, load("pyarrow").string())


@unseen
def sign(
    batch: Batch,
    *,
    key: KeySource | Key,
    message: str = "message",
    output: str = "signature",
    context: bytes = b"",
    prehash: str | None = None,
    deterministic: bool = False,
    engine: Engine | None = None,
) -> Batch:
    """Appends the column `output` with signatures of the column `message`. The signature of null is null.

    `key` is the path of an unencrypted PEM file, or a function without arguments that returns the PrivateKey. A PrivateKey itself is
    a TypeError, because engines would pickle it and send it to their workers.
    """
    source = Key.of(key)
    messages = _column(batch, message, "message")
    _check_new(batch, output, "output")
    signatures = source.get().sign_batch(
        messages, context=context, prehash=prehash, deterministic=deterministic, nulls="propagate", engine=engine
    )
    return _append(batch, output, signatures)


@unseen
def sha256(batch: Batch, *, message: str = "message", output: str = "sha256", engine: Engine | None = None) -> Batch:
    """Appends the column `output` with the SHA-256 sums of the column `message`. The sum of null is null."""
    messages = _column(batch, message, "message")
    _check_new(batch, output, "output")
    return _append(batch, output, sha256_batch(messages, nulls="propagate", engine=engine))


def _column(batch: Any, name: str, what: str) -> Any:
    """A column by its name."""
    arrow = load("pyarrow")
    if not isinstance(batch, (arrow.RecordBatch, arrow.Table)):
        raise TypeError(f"batch: {type(batch).__name__}; give a pyarrow.RecordBatch or a pyarrow.Table")
    found = batch.schema.get_all_field_indices(name)
    if len(found) != 1:
        count = "several columns have" if found else "no column has"
        harmless = [column for column in batch.schema.names if not _quote_path(column)[1]]
        columns = ", ".join(map(shown_column, batch.schema.names))
        raise ValueError(f"{what}: {count} the name {_quote(name, harmless)}; the columns are {columns}")
    column = batch.column(found[0])
    if arrow.types.is_run_end_encoded(column.type):
        column = load("pyarrow.compute").run_end_decode(column)
    # A column that was made of nothing but None has no type of bytes.
    return column.cast(arrow.binary()) if arrow.types.is_null(column.type) else column


def _check_new(batch: Any, name: str, what: str) -> None:
    if name in batch.schema.names:
        raise ValueError(f"{what}: there is a column {shown_column(name)} already; give another name, or drop that column")
    check_column(name, what)


def _append(batch: Batch, name: str, values: Any, kind: Any = None) -> Batch:
    table: Any = batch
    return cast(Batch, table.append_column(name, load("pyarrow").array(values, kind)))
