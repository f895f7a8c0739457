"""Tables: pyarrow's, and those of Polars and DuckDB, give what batches give. Clusters are in test_clusters.py."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# A Python without a GIL has no wheels of these.
for package in ["duckdb", "polars", "pyarrow"]:
    pytest.importorskip(package, reason=f"{package} is not installed")

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute
from conftest import SET

import hypergrove.duckdb
import hypergrove.polars
import hypergrove.ray
from hypergrove import PrivateKey, arrow, sha256_batch, verify_batch
from hypergrove.ray import Plan, plan

SHAKE = "SLH-DSA-SHAKE-128f"


@pytest.fixture(scope="module")
def signed(key: PrivateKey, other: PrivateKey) -> pa.Table:
    """Rows of two signers, and each way in which a row can be wrong. What their verdicts are is the column `expected`."""
    publics = [signer.public_key().to_raw() for signer in (key, other)]
    messages: list[bytes | None] = [b"message %d" % i for i in range(40)]
    signatures: list[bytes | None] = list(map(bytes, key.sign_batch(messages)))
    signatures[1::2] = map(bytes, other.sign_batch(messages[1::2]))
    keys: list[bytes | None] = [publics[i % 2] for i in range(40)]
    expected: list[bool | None] = [True] * 40
    messages[3], expected[3] = b"another", False
    signatures[4], expected[4] = signatures[6], False
    keys[5], expected[5] = publics[0], False
    signatures[7], expected[7] = b"too short", False
    messages[10], expected[10] = None, None
    signatures[11], expected[11] = None, None
    keys[12], expected[12] = None, None
    keys[13], expected[13] = b"no key", None
    keys[14], expected[14] = b"", None
    columns = {"row": range(40), "signature": signatures, "message": messages, "public_key": keys, "expected": expected}
    return pa.table(columns, schema=schema(pa.binary()))


def schema(kind: Any) -> Any:
    bytes_ = [(name, kind) for name in ("signature", "message", "public_key")]
    return pa.schema([("row", pa.int64()), *bytes_, ("expected", pa.bool_())])


@pytest.fixture
def pem(key: PrivateKey, tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_bytes(key.to_pem())
    return path


def test_tables_and_batches(signed: Any) -> None:
    expected = signed["expected"].to_pylist()
    halves = pa.concat_tables([signed[:11], signed[11:]])
    kinds = [signed, halves, signed.to_batches()[0]]
    kinds += [signed.cast(schema(kind)) for kind in (pa.large_binary(), pa.binary_view())]
    dictionary = signed.set_column(3, "public_key", signed["public_key"].dictionary_encode())
    # As Polars exports its columns, with views and chunks, and as other engines encode columns whose values repeat.
    views = pa.concat_tables([pa.table(pl.DataFrame(signed[:11])), pa.table(pl.DataFrame(signed[11:]))])
    assert views.schema.field("message").type == pa.binary_view() and views["message"].num_chunks == 2
    runs = signed.set_column(3, "public_key", pa.chunked_array([pa.compute.run_end_encode(signed["public_key"].combine_chunks())]))
    of_views = pa.DictionaryArray.from_arrays(pa.array(range(40)), signed["message"].combine_chunks().cast(pa.binary_view()))
    for table in [*kinds, dictionary, views, runs, signed.set_column(2, "message", of_views)]:
        verified = arrow.verify(table, set=SET)
        assert type(verified) is type(table)
        assert verified.column("valid").to_pylist() == expected, table.schema
        assert verified.drop_columns(["valid"]) == table
    assert arrow.verify(signed[20:][3:], set=SET)["valid"].to_pylist() == expected[23:]
    assert arrow.verify(signed[:0], set=SET)["valid"].to_pylist() == []


def test_other_columns_and_options(signed: Any, key: PrivateKey, other: PrivateKey) -> None:
    table = signed.select(["message"])[:4].rename_columns(["text"])
    sign = {"key": lambda: key, "message": "text", "context": b"letters", "output": "mark", "prehash": "SHA2-512"}
    table = arrow.sign(table, **sign)
    assert table.schema.field("mark").type == pa.binary(key.signature_size)
    verify: dict[str, Any] = {"signature": "mark", "message": "text", "context": b"letters", "prehash": "SHA2-512"}
    assert arrow.verify(table, public_key=key.public_key(), **verify)["valid"].to_pylist() == [True] * 4
    assert arrow.verify(table, public_key=other.public_key(), output="is", **verify)["is"].to_pylist() == [False] * 4
    assert arrow.verify(table, public_key=key.public_key(), **verify | {"context": b""})["valid"].to_pylist() == [False] * 4
    once, again = (arrow.sign(table, **sign | {"output": "again", "deterministic": True})["again"] for _ in range(2))
    assert once == again != table["mark"]


def test_a_status_says_why_a_verdict_is_null(signed: Any) -> None:
    verified = arrow.verify(signed, set=SET, status="status")
    assert verified.schema.names[-2:] == ["valid", "status"]
    for row in verified.to_pylist():
        assert (row["status"] is None) == (row["valid"] is not None), row["row"]
    status = verified["status"].to_pylist()
    assert status[10:13] == ["null"] * 3
    assert "public key has another length" in status[13] == status[14]
    assert arrow.verify(signed[15:], set=SET, status="why")["why"].null_count == 25


def test_sums(signed: Any) -> None:
    messages = signed["message"]
    sums = arrow.sha256(signed)["sha256"]
    assert sums.type == pa.binary(32) and sums.null_count == 1 and not sums[10].is_valid
    assert sums.drop_null().to_pylist() == list(sha256_batch(messages.drop_null()))
    assert arrow.sha256(signed, message="signature", output="sum").column("sum").null_count == 1
    nothing = pa.table({"message": [None, None]})
    assert nothing.schema.field("message").type == pa.null()
    assert arrow.sha256(nothing)["sha256"].to_pylist() == [None, None]


def test_errors_name_the_columns(signed: Any, key: PrivateKey) -> None:
    with pytest.raises(ValueError, match="signature: no column has the name 'mark'; the columns are 'row', 'signature', 'message'"):
        arrow.verify(signed, signature="mark", set=SET)
    with pytest.raises(ValueError, match="message: several columns have the name 'message'"):
        arrow.verify(signed.append_column("message", signed["row"]), set=SET)
    with pytest.raises(ValueError, match="output: there is a column 'expected' already"):
        arrow.verify(signed, output="expected", set=SET)
    with pytest.raises(ValueError, match="status: there is a column 'valid' already"):
        arrow.verify(signed, status="valid", set=SET)
    with pytest.raises(TypeError, match="batch: dict; give a pyarrow.RecordBatch"):
        arrow.sha256({"message": [b""]})
    with pytest.raises(TypeError, match="public_keys: .* with set="):
        arrow.verify(signed)
    with pytest.raises(TypeError, match="messages"):
        arrow.verify(signed, message="row", set=SET)
    with pytest.raises(TypeError, match="messages"):
        arrow.sign(signed, key=lambda: key, message="row", output="new")


def test_a_private_key_stays_with_the_worker(signed: Any, key: PrivateKey, pem: Path) -> None:
    for function in (arrow.sign, lambda *_, key: hypergrove.polars.sign(key=key), hypergrove.ray.sign):
        with pytest.raises(TypeError, match="must not travel to the workers.*give the path of a PEM file, or a function"):
            function(signed, key=key)
    for wrong in (key.to_pem(), None, 7):
        with pytest.raises(TypeError, match="key: .*; give the path of a PEM file") as raised:
            arrow.sign(signed, key=wrong)
        assert "PRIVATE" not in str(raised.value)
    with pytest.raises(TypeError, match="key: the function returned bytes, not a PrivateKey"):
        arrow.sign(signed.select(["message"]), key=key.to_pem)
    with pytest.raises(FileNotFoundError, match="17 characters, not shown"):
        arrow.sign(signed.select(["message"]), key=pem.with_name("there is none.pem"))
    pem.write_bytes(key.to_pem(b"passphrase"))
    with pytest.raises(ValueError, match=f"key: {pem}: .*passphrase"):
        arrow.sign(signed.select(["message"]), key=pem)


def test_a_worker_loads_its_key_once(signed: Any, key: PrivateKey, other: PrivateKey, pem: Path) -> None:
    from hypergrove._engines import Key, _read

    calls = []
    source = Key(lambda: calls.append(1) or key)
    assert source.get() is source.get() and len(calls) == 1
    _read.cache_clear()
    messages = signed.select(["message"])[:3]
    first, second = (arrow.sign(messages, key=path, deterministic=True) for path in (pem, str(pem)))
    assert first == second and _read.cache_info().misses == 1
    assert arrow.verify(first, public_key=key.public_key())["valid"].to_pylist() == [True] * 3
    pem.write_bytes(other.to_pem())
    os.utime(pem, ns=(1, 1))
    assert arrow.verify(arrow.sign(messages, key=pem), public_key=other.public_key())["valid"].to_pylist() == [True] * 3
    loaded = Key(pem)
    loaded.get()
    pickled = pickle.dumps(loaded)
    assert len(pickled) < 300 and pickle.loads(pickled).get() == other


def test_polars(signed: Any, key: PrivateKey, pem: Path) -> None:
    frame = pl.DataFrame(signed)
    expected = signed["expected"].to_pylist()
    verify = hypergrove.polars.verify("signature", pl.col("message"), "public_key", set=SET)
    assert frame.select(verify)["valid"].to_list() == expected
    lazy = pl.concat([frame.lazy()] * 5).with_columns(verify)
    assert lazy.collect_schema()["valid"] == pl.Boolean
    for engine in ("in-memory", "streaming"):
        collected = lazy.collect(engine=engine).sort("row", maintain_order=True)
        assert collected["valid"].to_list() == [verdict for verdict in expected for _ in range(5)], engine
        assert lazy.filter(pl.col("valid")).select(pl.len()).collect(engine=engine).item() == 5 * expected.count(True)
    one = hypergrove.polars.verify(public_key=key.public_key()).alias("one")
    literal = hypergrove.polars.verify(public_key=pl.lit(key.public_key().to_raw()), set=SET).alias("literal")
    both = frame.select("row", one, literal)
    assert both["one"].to_list() == both["literal"].to_list()
    assert both["one"].to_list()[:6] == [True, False, True, False, False, False]
    assert frame.group_by(pl.col("row") % 2).agg(verify.sum()).sort("row")["valid"].to_list() == [16, 15]
    assert frame.head(0).select(verify, literal).shape == (0, 2)
    text = pl.DataFrame({"message": ["one", "zwölf", None]})
    made = text.select("message", hypergrove.polars.sign(key=pem), hypergrove.polars.sha256())
    assert made.schema["signature"] == made.schema["sha256"] == pl.Binary
    assert made.select(one)["one"].to_list() == [True, True, None]
    assert made["sha256"].to_list()[:2] == list(sha256_batch(["one".encode(), "zwölf".encode()]))


# One message is signed three times, and claimed to be three messages. The last rows are what the key has signed.
PAY = [b"pay 1", b"pay 2", b"pay 3"]


@pytest.fixture
def paid(key: PrivateKey) -> pl.DataFrame:
    signatures = list(map(bytes, key.sign_batch([PAY[0]] * 3)))
    return pl.DataFrame({"s": signatures, "m": PAY, "k": [key.public_key().to_raw()] * 3, "g": [0, 0, 1]})


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"m": pl.col("m").head(1)}, "message ('m') has 1"),
        ({"m": pl.col("m").head(2)}, "message ('m') has 2"),
        ({"m": pl.col("m").filter(pl.col("m") == PAY[0])}, "message ('m') has 1"),
        ({"m": pl.col("m").filter(pl.col("g") == 0)}, "message ('m') has 2"),
        ({"m": pl.when(pl.col("m") == PAY[0]).then("m").drop_nulls()}, "message ('m') has 1"),
        ({"m": pl.col("m").slice(0, 1)}, "message ('m') has 1"),
        ({"m": pl.col("m").head(1).cast(pl.Binary).fill_null(b"")}, "message ('m') has 1"),
        ({"m": pl.col("m").map_batches(lambda rows: rows.head(1), return_dtype=pl.Binary)}, "message ('m') has 1"),
        ({"m": pl.lit(pl.Series(PAY[:2]))}, "message () has 2"),
        ({"s": pl.col("s").head(1), "k": pl.col("k").unique()}, "message ('m') has 3"),
        ({"m": pl.col("m").head(1), "k": pl.col("k").first()}, "message ('m') has 1"),
        ({"k": pl.col("k").unique()}, "public_key ('k') has 1"),
        ({name: pl.col(name).head(1) for name in "smk"}, "of the 3 rows, signature ('s') has 1, message ('m') has 1, public_key ('k') has 1"),
        ({"k": pl.col("k").head(0)}, "public_key ('k') has 0"),
    ],
)
def test_polars_repeats_no_row_of_a_column(paid: pl.DataFrame, key: PrivateKey, engine: Any, changes: Any, counts: str) -> None:
    columns = {name: pl.col(name) for name in "smk"} | changes
    verify = hypergrove.polars.verify(*columns.values(), set=SET)
    tables: list[Any] = [paid.lazy().select(verify), paid.lazy().with_columns(verify), paid.lazy().select("m", verify)]
    tables += [paid.lazy().filter(verify), paid.lazy().group_by(1).agg(verify), paid.lazy().select(verify.over(pl.lit(1)))]
    if "k" not in changes:
        one = hypergrove.polars.verify(columns["s"], columns["m"], key.public_key())
        tables.append(paid.lazy().with_columns(one))
    if len(paid.select(columns["m"])) == 1:
        # A signature or a sum of one row is not one of each row.
        for new in (hypergrove.polars.sha256(columns["m"]), hypergrove.polars.sign(columns["m"], key=lambda: key)):
            with pytest.raises((pl.exceptions.PolarsError, ValueError), match=r"of the 3 rows, message \('m'\) has 1; filter"):
                paid.lazy().with_columns(new).collect(engine=engine)
    for table in tables:
        with pytest.raises((pl.exceptions.PolarsError, ValueError)) as raised:
            table.collect(engine=engine)
        assert "columns of different lengths" in str(raised.value) and counts in str(raised.value)
        assert "filter the whole frame" in str(raised.value)


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_polars_repeats_literals_and_scalars(paid: pl.DataFrame, engine: Any) -> None:
    raw, public = paid["k"][0], "k"
    cases = {
        "columns": (("s", "m", public), [True, False, False]),
        "literals": (("s", pl.lit(PAY[0]), pl.lit(raw.hex()).str.decode("hex")), [True] * 3),
        "a literal series": (("s", "m", pl.lit(pl.Series([raw]))), [True, False, False]),
        "scalars": (("s", pl.col("m").first(), pl.col(public).max().cast(pl.Binary)), [True] * 3),
        "a scalar of a filter": (("s", pl.col("m").filter(pl.col("g") == 1).first(), public), [False] * 3),
        "of each group": (("s", pl.col("m").first().over("g"), public), [True, True, False]),
        "a signature for all": ((pl.col("s").last(), "m", public), [True, False, False]),
        "a function": (("s", pl.col("m").map_batches(lambda rows: rows, return_dtype=pl.Binary), public), [True, False, False]),
    }
    for name, (columns, expected) in cases.items():
        verify = hypergrove.polars.verify(*columns, set=SET)
        # Many rows come in many parts.
        many = pl.concat([paid] * 50)
        assert paid.lazy().select("m", verify).collect(engine=engine)["valid"].to_list() == expected, name
        if name != "a scalar of a filter":
            assert many.lazy().with_columns(verify).collect(engine=engine)["valid"].to_list() == expected * 50, name
        assert paid.head(0).lazy().select(verify).collect(engine=engine)["valid"].to_list() == [], name
    # Columns may be shorter than the frame, as long as all are, and a frame may have one row.
    first = [pl.col(name).filter(pl.col("g") == 0) for name in "smk"]
    assert paid.lazy().select(hypergrove.polars.verify(*first, set=SET)).collect(engine=engine)["valid"].to_list() == [True, False]
    one = hypergrove.polars.verify("s", pl.col("m").head(1), "k", set=SET)
    assert paid.head(1).lazy().select(one).collect(engine=engine)["valid"].to_list() == [True]
    assert paid[1:2].lazy().select(one).collect(engine=engine)["valid"].to_list() == [False]
    # In groups, a scalar is that of the group.
    scalar = hypergrove.polars.verify("s", pl.col("m").first(), "k", set=SET)
    groups = paid.lazy().group_by("g", maintain_order=True).agg(scalar, scalar.all().alias("all")).collect(engine=engine)
    assert groups["valid"].to_list() == [[True, True], [False]] and groups["all"].to_list() == [True, False]


def connected() -> Any:
    connection = duckdb.connect()
    hypergrove.duckdb.register(connection)
    return connection


def test_duckdb(signed: Any, key: PrivateKey) -> None:
    connection = connected()
    call = "slh_dsa_verify(signature, message, public_key, '%s')" % SET
    rows = connection.sql(f"SELECT {call}, expected FROM signed ORDER BY row").fetchall()
    assert [verdict for verdict, _ in rows] == [expected for _, expected in rows]
    # More rows than one call gets, on several threads, filtered where some of them are.
    many = pa.concat_tables([signed] * 120)  # noqa: F841
    counts = f"SELECT {call} AS v, count(*) FROM many WHERE row <> 2 GROUP BY v ORDER BY v"
    expected = signed["expected"].to_pylist()
    assert connection.sql(counts).fetchall() == [
        (False, 120 * expected.count(False)),
        (True, 120 * (expected.count(True) - 1)),
        (None, 120 * expected.count(None)),
    ]
    sums = connection.sql("SELECT sha256_rows(message) FROM signed ORDER BY row").fetchall()
    assert [row for (row,) in sums] == arrow.sha256(signed)["sha256"].to_pylist()
    assert connection.sql(f"SELECT {call} FROM signed WHERE row > 50").fetchall() == []
    assert connection.sql("SELECT sha256_rows(encode('one')), sha256_rows(NULL)").fetchall() == [
        (sha256_batch([b"one"])[0], None)
    ]


def test_duckdb_takes_a_set_of_each_row(signed: Any) -> None:
    shake = PrivateKey.generate(SHAKE)
    public, messages = shake.public_key().to_raw(), [b"one", b"two", b"three"]
    rows = signed.select(["signature", "message", "public_key"])[:3].to_pylist()
    for message, signature in zip(messages, shake.sign_batch(messages), strict=True):
        rows.append({"signature": bytes(signature), "message": message, "public_key": public})
    for row, name in zip(rows, [SET, SET, None, SHAKE, SET, SHAKE], strict=True):
        row["set"] = name
    mixed = pa.Table.from_pylist(rows)  # noqa: F841
    connection = connected()
    call = "SELECT slh_dsa_verify(signature, message, public_key, set) FROM mixed"
    assert connection.sql(call).fetchall() == [(True,), (True,), (None,), (True,), (False,), (True,)]
    assert connection.sql(call.replace(", set)", ", NULL)")).fetchall() == [(None,)] * 6
    with pytest.raises(duckdb.InvalidInputException, match="SLH-DSA-SHA2-129f"):
        connection.sql(call.replace(", set)", ", 'SLH-DSA-SHA2-129f')")).fetchall()


@pytest.mark.parametrize("version", ["1.0", "1.4", "1.5"])
@pytest.mark.parametrize("settings", [[], ["produce_arrow_string_view"], ["arrow_large_buffer_size", "arrow_lossless_conversion"]])
def test_duckdb_has_the_same_verdicts_under_all_settings(signed: Any, version: str, settings: list[str]) -> None:
    connection = connected()
    connection.execute(f"SET arrow_output_version='{version}'")
    for setting in settings:
        connection.execute(f"SET {setting}=true")
    expected = signed["expected"].to_pylist()
    sets = pa.array([SET, SHAKE] * 20)
    mixed = signed.append_column("set", sets)  # noqa: F841
    call = "SELECT slh_dsa_verify(signature, message, public_key, %s) FROM %s ORDER BY row"
    rows = connection.sql(call % (f"'{SET}'", "signed")).fetchall()
    assert [verdict for (verdict,) in rows] == expected
    # The keys and signatures of every second row are of another set.
    rows = connection.sql(call % ("set", "mixed")).fetchall()
    of_both = [verdict if row % 2 == 0 or verdict is None else False for row, verdict in enumerate(expected)]
    assert [verdict for (verdict,) in rows] == of_both
    rows = connection.sql(call % (f"CASE WHEN row < 20 THEN '{SET}' END", "signed")).fetchall()
    assert [verdict for (verdict,) in rows] == expected[:20] + [None] * 20
    sums = connection.sql("SELECT sha256_rows(message) FROM signed ORDER BY row").fetchall()
    assert [row for (row,) in sums] == arrow.sha256(signed)["sha256"].to_pylist()


def test_nothing_is_imported_that_is_not_asked_for() -> None:
    code = (
        "import sys, hypergrove.arrow, hypergrove.polars, hypergrove.duckdb, hypergrove.spark, hypergrove.ray\n"
        "print(sorted({'pyarrow', 'numpy', 'polars', 'duckdb', 'ray', 'pyspark'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_what_is_missing_is_named() -> None:
    code = "import sys; sys.modules['polars'] = None; import hypergrove.polars; hypergrove.polars.sha256()"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "hypergrove's extra 'polars'" in ran.stderr, ran.stderr


@pytest.mark.parametrize(
    ("nodes", "num_gpus", "expected"),
    [
        # A single CPU is left to the readers.
        ([(1, 0)], None, Plan(1, 1, 0.0, 0.0)),
        ([(2, 0)], None, Plan(1, 2, 0.25, 0.0)),
        ([(16, 0)] * 2, None, Plan(8, 4, 0.5, 0.0)),
        ([(0, 0), (7, 0)], None, Plan(1, 4, 0.5, 0.0)),
        ([(1, 0), (2, 0), (16, 0)], None, Plan(9, 2, 0.25, 0.0)),
        ([(1, 0)] * 3, None, Plan(3, 1, 0.0, 0.0)),
        # The cluster's autoscaler has not begun.
        ([(0, 0)], None, Plan(1, 4, 0.5, 0.0)),
        ([], None, Plan(1, 4, 0.5, 0.0)),
        ([(0, 0)], 1.0, Plan(1, 4, 0.5, 1.0)),
        ([(16, 4), (8, 0)], None, Plan(4, 4, 0.5, 1.0)),
        ([(16, 1)], 0.1, Plan(10, 1, 0.125, 0.1)),
        ([(1, 1)], None, Plan(1, 1, 0.0, 1.0)),
        ([(4, 8)], 0.25, Plan(32, 1, 3 / 64, 0.25)),
        ([(2, 16)], None, Plan(16, 1, 1 / 32, 1.0)),
        ([(8, 0.5)], None, Plan(1, 8, 1.0, 0.5)),
        ([(16, 4)], 0.0, Plan(4, 4, 0.5, 0.0)),
    ],
)
def test_actors_leave_cpus_to_readers(nodes: Any, num_gpus: float | None, expected: Plan) -> None:
    resources = [{"CPU": float(cpus), "GPU": float(gpus)} for cpus, gpus in nodes]
    assert plan(resources, num_gpus) == expected
    # However many CPUs two of these stages reserve, and wherever, a reader finds one.
    whole = sum(int(cpus) for cpus, _ in nodes)
    assert whole == 0 or 2 * expected.workers * expected.num_cpus <= whole - (expected.num_cpus > 0)


def test_actors_that_fit_no_node_are_refused() -> None:
    with pytest.raises(ValueError, match="num_gpus: 2; no node has so many, the largest has 1"):
        plan([{"CPU": 8.0, "GPU": 1.0}], 2)


@pytest.mark.parametrize(
    ("gpus", "visible", "expected"),
    [
        ([], None, ["cpu"]),
        ([], "0,1", ["cpu"]),
        (["3"], "3", ["cuda:0"]),
        (["5", "3"], "3,5", ["cuda:1", "cuda:0"]),
        (["2"], None, ["cuda:2"]),
        (["GPU-6a1b2c3d-0000-1111-2222-333344445555"], None, ["cuda:GPU-6a1b2c3d-0000-1111-2222-333344445555"]),
        (["GPU-6a1b2c3d"], "GPU-7,GPU-6a1b2c3d", ["cuda:GPU-6a1b2c3d"]),
        (["GPU-6a1b"], "GPU-7,GPU-6a1b", ["cuda:1"]),
        (["MIG-1234"], "MIG-1234", ["cuda:0"]),
    ],
)
def test_devices_are_those_that_ray_gave(gpus: list[str], visible: str | None, expected: list[str]) -> None:
    assert hypergrove.ray._devices(gpus, visible) == expected
