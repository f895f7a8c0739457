"""Functions for DuckDB's SQL: `register` adds `slh_dsa_verify` and `sha256_rows` to a connection.

>>> import duckdb
>>> connection = duckdb.connect()
>>> register(connection)
>>> connection.sql("SELECT hex(sha256_rows(encode('one')))[:8]").fetchall()
[('7692C3AD',)]

DuckDB calls them with at most 2,048 rows at a time. It needs pyarrow for that, which is imported when `register` is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import Engine, sha256_batch
from ._engines import load, unseen, verify_rows

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["register"]


@unseen
def register(
    connection: DuckDBPyConnection, *, context: bytes = b"", prehash: str | None = None, engine: Engine | None = None
) -> None:
    """Adds functions to a connection.

    * `slh_dsa_verify(signature BLOB, message BLOB, public_key BLOB, set VARCHAR) -> BOOLEAN`: is the signature valid? Each row can
      have another set. The verdict is NULL where an argument is NULL or where a public key cannot be one, for example because of its
      length. An unknown set is an error. `context` and `prehash` hold for all calls of the function.
    * `sha256_rows(message BLOB) -> BLOB`: the SHA-256 sum. The sum of NULL is NULL.
    """
    arrow = load("pyarrow")

    def verdicts(signatures: Any, messages: Any, keys: Any, set: str | None) -> Any:
        if set is None:
            return arrow.nulls(len(keys), arrow.bool_())
        return arrow.array(verify_rows(keys, signatures, messages, set=set, context=context, prehash=prehash, engine=engine))

    def slh_dsa_verify(signatures: Any, messages: Any, keys: Any, sets: Any) -> Any:
        names = sets.to_pylist()
        if len(distinct := dict.fromkeys(names)) <= 1:
            return verdicts(signatures, messages, keys, next(iter(distinct), None))
        # Views, as which DuckDB gives columns under some of its settings, have no `take`.
        signatures, messages, keys = (column.cast(arrow.large_binary()) for column in (signatures, messages, keys))
        valid: list[bool | None] = [None] * len(names)
        for name in distinct:
            rows = arrow.array(row for row, other in enumerate(names) if other == name)
            some = verdicts(signatures.take(rows), messages.take(rows), keys.take(rows), name)
            for row, verdict in zip(rows.to_pylist(), some.to_pylist(), strict=True):
                valid[row] = verdict
        return arrow.array(valid, arrow.bool_())

    def sha256_rows(messages: Any) -> Any:
        return arrow.array(sha256_batch(messages, nulls="propagate", engine=engine))

    to: Any = connection
    # DuckDB would copy the rows without NULL before each call; the package reads NULLs where they are.
    how = {"type": "arrow", "null_handling": "special"}
    to.create_function("slh_dsa_verify", slh_dsa_verify, ["BLOB", "BLOB", "BLOB", "VARCHAR"], "BOOLEAN", **how)
    to.create_function("sha256_rows", sha256_rows, ["BLOB"], "BLOB", **how)
