"""What data engines make of verification: Polars, DuckDB, Spark and Ray against `verify_batch`, on the CPU.

    python crates/py/bench/tables.py data FOLDER                  # Parquet files, 8 GB: the package signs
    python crates/py/bench/tables.py measure FOLDER               # writes crates/py/bench/tables.json
    python crates/py/bench/tables.py measure FOLDER --only Ray    # one part of it
    python crates/py/bench/tables.py data LARGE --rows 1000000 --only-file 128f-1000        # one file of 17 GB
    python crates/py/bench/tables.py measure LARGE --only large
    python crates/py/bench/tables.py render                       # the tables of docs/tables.md

The files: rows of SLH-DSA-SHA2-128f and 128s of 1, 1,000 and 100,000 signers. A signature of 128s takes long, so `--signed` rows are
signed and repeat; the rows of other signers have random public keys, and their signatures are not valid. Neither changes the work of
a verification. Each part runs in a process of its own. What is compared takes turns, and the fastest run counts.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measure import commit, cpu, seconds

SETS = {"128f": "SLH-DSA-SHA2-128f", "128s": "SLH-DSA-SHA2-128s"}
SIGNERS = [1, 1_000, 100_000]
# Blocks of 34 and 31 MB: each core of a machine gets many, and a reader's memory is small.
GROUPS = {"128f": 2_000, "128s": 4_000}
TURNS = 3
RECORD = Path(__file__).with_name("tables.json")
SUMS = 10_000_000


def file_of(folder: Path, short: str, signers: int) -> Path:
    return folder / f"{short}-{signers}.parquet"


def make(folder: Path, rows: int, signed: int, only: str | None) -> None:
    """The Parquet files, in the layout that reads fastest: row groups that fit a block, signatures as they are, a dictionary of keys."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    import hypergrove

    folder.mkdir(parents=True, exist_ok=True)
    for short, name in SETS.items():
        for signers in SIGNERS:
            if only and file_of(folder, short, signers).stem != only:
                continue
            began = time.perf_counter()
            count = min(signers, signed)
            keys, publics = hypergrove.keygen_batch(name, count)
            signatures = [b""] * signed
            messages = [f"message {i}".encode().ljust(64) for i in range(signed)]
            for i in range(count):
                signatures[i::count] = map(bytes, keys[i].sign_batch(messages[i::count]))
            raw = list(map(bytes, publics))
            schema = pa.schema(
                [("message", pa.binary()), ("signature", pa.binary(len(signatures[0]))), ("public_key", pa.binary())]
            )
            with parquet.ParquetWriter(
                file_of(folder, short, signers), schema, compression="none", use_dictionary=["public_key"]
            ) as file:
                for first in range(0, rows, GROUPS[short]):
                    numbers = range(first, min(rows, first + GROUPS[short]))
                    is_signed = [i % signers < count for i in numbers]
                    # A signer's key is the same in all of its rows.
                    of_signer = [raw[i % signers % count] if ok else i.to_bytes(32) for i, ok in zip(numbers, is_signed)]
                    columns = [[messages[i % signed] for i in numbers], [signatures[i % signed] for i in numbers], of_signer]
                    file.write_table(pa.table(columns, schema=schema))
            print(f"{short}, {signers:,} signers: {time.perf_counter() - began:.0f} s", file=sys.stderr)


def fastest(calls: dict[str, Callable[[], object]], turns: int = TURNS) -> dict[str, float]:
    """Seconds of each call, in turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(turns):
        for name, call in calls.items():
            best[name] = min(best[name], seconds(call))
    return best


def in_memory(folder: Path) -> dict[str, Any]:
    """Engines of one process, over the same rows of Arrow."""
    import duckdb
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as parquet

    import hypergrove.duckdb
    import hypergrove.polars
    from hypergrove import arrow, verify_batch

    found: dict[str, Any] = {}
    for short, name in SETS.items():
        for signers in SIGNERS:
            read = parquet.read_table(file_of(folder, short, signers))
            # DuckDB copies record batches of 12 MB four times as fast as those of a file, whose memory is new in each call.
            table = pa.Table.from_batches(read.to_batches(max_chunksize=(12 << 20) // read.schema.field("signature").type.byte_width))
            columns = [table[column] for column in ("public_key", "signature", "message")]
            frame = pl.DataFrame(table)
            connection = duckdb.connect()
            connection.execute("SET enable_progress_bar = false")
            hypergrove.duckdb.register(connection)
            connection.register("signed", table)
            valid = hypergrove.polars.verify(set=name)
            query = f"SELECT count(*) FILTER (slh_dsa_verify(signature, message, public_key, '{name}')) FROM signed"
            lazy = frame.lazy().select(valid)
            took = fastest(
                {
                    "verify_batch": lambda: verify_batch(*columns, set=name),
                    "arrow.verify": lambda: arrow.verify(table, set=name),
                    "Polars": lambda: frame.select(valid),
                    "Polars, streaming": lambda: lazy.collect(engine="streaming"),
                    "DuckDB": lambda: connection.sql(query).fetchall(),
                }
            )
            found[f"{short} {signers}"] = {"rows": table.num_rows, "seconds": took}
    return found


def with_ray(folder: Path) -> dict[str, Any]:
    """Ray Data from Parquet to its object store, on one node with the machine's CPUs."""
    import pyarrow.parquet as parquet
    import ray

    import hypergrove.ray
    from hypergrove import verify_batch

    ray.init("local", num_cpus=os.cpu_count(), log_to_driver=False, object_store_memory=4 << 30)
    ray.data.DataContext.get_current().enable_progress_bars = False
    found = {}
    for short, name in SETS.items():
        path = file_of(folder, short, 1_000)
        table = parquet.read_table(path)
        columns = [table[column] for column in ("public_key", "signature", "message")]

        def consume(dataset: Any) -> None:
            rows = sum(bundle.num_rows() for bundle in dataset.iter_internal_ref_bundles())
            assert rows == table.num_rows, rows

        def read() -> Any:
            return ray.data.read_parquet(str(path))

        took = fastest(
            {
                "identity": lambda: consume(read().map_batches(identity, batch_size=None, batch_format="pyarrow")),
                "verify": lambda: consume(hypergrove.ray.verify(read(), set=name)),
                "verify_batch": lambda: verify_batch(*columns, set=name),
            }
        )
        found[short] = {"rows": table.num_rows, "bytes": path.stat().st_size, "seconds": took}
    return found


def identity(batch: Any) -> Any:
    return batch


def with_spark(folder: Path) -> dict[str, Any]:
    """Spark from Parquet to nowhere, in local mode."""
    import pyarrow.parquet as parquet
    from pyspark.sql import SparkSession

    import hypergrove.spark
    from hypergrove import verify_batch

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{os.cpu_count()}]").config("spark.driver.memory", "4g")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", 2000).config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    found = {}
    for short, name in SETS.items():
        path = file_of(folder, short, 1_000)
        table = parquet.read_table(path)
        columns = [table[column] for column in ("public_key", "signature", "message")]

        def consume(frame: Any) -> None:
            frame.write.format("noop").mode("overwrite").save()

        def read() -> Any:
            return spark.read.parquet(str(path))

        took = fastest(
            {
                "identity": lambda: consume(read().mapInArrow(identities, read().schema)),
                "verify": lambda: consume(hypergrove.spark.verify(read(), set=name)),
                "verify_batch": lambda: verify_batch(*columns, set=name),
            }
        )
        found[short] = {"rows": table.num_rows, "bytes": path.stat().st_size, "seconds": took}
    spark.stop()
    return found


def identities(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


def sums(folder: Path, rows: int) -> dict[str, Any]:
    """SHA-256 of many rows in a streaming query of Polars, from file to file; the most memory that the process has."""
    import resource

    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from hypergrove.polars import sha256

    source = folder / f"messages-{rows}.parquet"
    if not source.exists():
        schema = pa.schema([("message", pa.binary())])
        with parquet.ParquetWriter(source, schema, compression="none", use_dictionary=False) as file:
            for first in range(0, rows, 100_000):
                batch = [f"message {i}".encode().ljust(64) for i in range(first, first + 100_000)]
                file.write_table(pa.table([batch], schema=schema))
    target = folder / "sums.parquet"
    took = seconds(lambda: pl.scan_parquet(source).select(sha256()).sink_parquet(target))
    assert parquet.read_metadata(target).num_rows == rows
    return {"rows": rows, "seconds": took, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3}


def large(folder: Path) -> dict[str, Any]:
    """Streaming queries of Polars and DuckDB over a file that need not fit in memory."""
    import resource

    import duckdb
    import polars as pl

    import hypergrove.duckdb
    import hypergrove.polars

    path, name = file_of(folder, "128f", 1_000), SETS["128f"]
    connection = duckdb.connect()
    connection.execute("SET enable_progress_bar = false")
    hypergrove.duckdb.register(connection)
    query = f"SELECT count(*) FILTER (slh_dsa_verify(signature, message, public_key, '{name}')) FROM '{path}'"
    counts: dict[str, int] = {}
    peaks: dict[str, float] = {}

    def polars() -> None:
        valid = pl.scan_parquet(path).select(hypergrove.polars.verify(set=name).sum())
        counts["Polars, streaming"] = valid.collect(engine="streaming").item()

    def duck() -> None:
        [(counts["DuckDB"],)] = connection.sql(query).fetchall()

    took = {}
    for engine, call in {"Polars, streaming": polars, "DuckDB": duck}.items():
        took[engine] = seconds(call)
        peaks[engine] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    assert set(counts.values()) == {rows}, counts
    return {"rows": rows, "bytes": path.stat().st_size, "seconds": took, "peak_mb": peaks}


def on_nodes(folder: Path, nodes: int) -> dict[str, Any]:
    """Ray on several nodes of this machine, with one CPU each."""
    import pyarrow.parquet as parquet
    import ray
    from ray.cluster_utils import Cluster

    import hypergrove.ray

    cluster = Cluster()
    for _ in range(nodes):
        cluster.add_node(num_cpus=1, object_store_memory=1 << 30)
    ray.init(address=cluster.address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    path = file_of(folder, "128s", 1_000)
    rows = parquet.read_metadata(path).num_rows

    def verify(some: int) -> None:
        dataset = hypergrove.ray.verify(ray.data.read_parquet(str(path)).limit(some), set=SETS["128s"])
        assert sum(bundle.num_rows() for bundle in dataset.iter_internal_ref_bundles()) == some

    took = fastest({"few": lambda: verify(1), "all": lambda: verify(rows)}, turns=3)
    ray.shutdown()
    cluster.shutdown()
    return {"nodes": nodes, "rows": rows, "bytes": path.stat().st_size, "seconds": took}


PARTS: dict[str, list[tuple[Callable[..., dict[str, Any]], list[int]]]] = {
    "memory": [(in_memory, [])],
    "large": [(large, [])],
    "Ray": [(with_ray, [])],
    "Spark": [(with_spark, [])],
    "sums": [(sums, [SUMS // 10]), (sums, [SUMS]), (sums, [4 * SUMS])],
    "nodes": [(on_nodes, [1]), (on_nodes, [2]), (on_nodes, [4])],
}


def measure(folder: Path, only: str | None) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    machine = {"cpu": cpu(), "cores": os.cpu_count(), "python": platform.python_version()}
    # The file of the part "large" is made for it alone.
    for name in [only] if only else [name for name in PARTS if name != "large"]:
        results = []
        for function, arguments in PARTS[name]:
            call = f"tables.{function.__name__}(pathlib.Path({str(folder)!r}), *{arguments})"
            code = f"import json, pathlib, tables; print(json.dumps({call}))"
            ran = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, stdout=subprocess.PIPE, check=True)
            results.append(json.loads(ran.stdout.splitlines()[-1]))
        record[name] = results if len(results) > 1 else results[0]
        record.setdefault("measured", {})[name] = {"date": time.strftime("%Y-%m-%d"), "commit": commit(), **machine}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")


def tables(record: dict[str, Any]) -> dict[str, str]:
    """The tables of docs/tables.md, by their names there."""
    where = {
        name: f"Measured on {of['date']}: {of['cpu']}, {of['cores']} cores, Python {of['python']}."
        for name, of in record["measured"].items()
    }
    cores = record["measured"]["Ray"]["cores"]
    memory = [where["memory"], "", "| set, signers | `verify_batch` | `arrow.verify` | Polars | Polars, streaming | DuckDB |"]
    memory.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, found in record["memory"].items():
        short, signers = name.split()
        base, *others = found["seconds"].values()
        shares = " | ".join(f"{100 * base / took:.0f} %" for took in others)
        memory.append(f"| {SETS[short]}, {int(signers):,} | {found['rows'] / base:,.0f}/s | {shares} |")

    files = [where["Ray"], "", "| engine, set | identity | `verify_batch` | together | `verify` | of together |"]
    files.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for engine in ("Ray", "Spark"):
        for short, found in record[engine].items():
            times = found["seconds"]
            both = times["identity"] + times["verify_batch"]
            parts = " | ".join(f"{took:.1f} s" for took in (times["identity"], times["verify_batch"], both, times["verify"]))
            files.append(f"| {engine}, {SETS[short]} | {parts} | {100 * times['verify'] / both:.0f} % |")

    sums = [where["sums"], "", "| rows | seconds | most memory |", "| ---: | ---: | ---: |"]
    sums += [f"| {found['rows']:,} | {found['seconds']:.1f} | {found['peak_mb']:,.0f} MB |" for found in record["sums"]]

    nodes = [where["nodes"], "", "| nodes | one row | all rows | model |", "| ---: | ---: | ---: | ---: |"]
    for found in record["nodes"]:
        few, whole = found["seconds"]["few"], found["seconds"]["all"]
        # Nodes of one CPU each share the cores.
        predicted = start(record) + work(record, found["rows"]) * cores / min(found["nodes"], cores)
        nodes.append(f"| {found['nodes']} | {few:.1f} s | {whole:.1f} s | {predicted:.1f} s |")

    billion = 10**9
    size = record["Ray"]["128s"]["bytes"] / record["Ray"]["128s"]["rows"] * billion
    hours = work(record, billion) * cores / 3600
    model = [
        f"They are {size / 1e12:.1f} TB. To read and verify them takes {hours:.0f} hours of one core like these.",
        "",
        "| cores | they need | storage of 1 GB/s | 10 GB/s | 100 GB/s |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for many in (64, 1024, 16384):
        need = size / (hours * 3600 / many)
        times = [max(hours / many, size / rate / 3600) for rate in (1e9, 1e10, 1e11)]
        model.append(f"| {many:,} | {need / 1e9:,.1f} GB/s | " + " | ".join(duration(hours) for hours in times) + " |")
    of_file = record["large"]
    whole_file = [where["large"], "", "| engine | seconds | rows a second | most memory so far |", "| --- | ---: | ---: | ---: |"]
    for engine, took in of_file["seconds"].items():
        peak = of_file["peak_mb"][engine]
        whole_file.append(f"| {engine} | {took:.0f} | {of_file['rows'] / took:,.0f} | {peak:,.0f} MB |")
    of_page = {"memory": memory, "large": whole_file, "files": files, "sums": sums, "nodes": nodes, "billion": model}
    return {name: "\n".join(lines) for name, lines in of_page.items()}


def start(record: dict[str, Any]) -> float:
    """Seconds of a run of one row on one node."""
    return float(record["nodes"][0]["seconds"]["few"])


def work(record: dict[str, Any], rows: int) -> float:
    """The model: what Ray needs for an identity function and what verification needs, both by the row, in seconds of all cores."""
    measured = record["Ray"]["128s"]
    times = measured["seconds"]
    handling = max(0.0, times["identity"] - start(record))
    return float((handling + times["verify_batch"]) / measured["rows"] * rows)


def duration(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["data", "measure", "render"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--signed", type=int, default=1_000)
    parser.add_argument("--only-file", help="of data: for example 128f-1000")
    parser.add_argument("--only", choices=PARTS)
    arguments = parser.parse_args()
    if arguments.what == "render":
        for name, text in tables(json.loads(RECORD.read_text())).items():
            print(f"<!-- rendered by crates/py/bench/tables.py: {name} -->\n{text}\n<!-- end -->\n")
    elif arguments.folder is None:
        parser.error("give a folder")
    elif arguments.what == "data":
        make(arguments.folder, arguments.rows, arguments.signed, arguments.only_file)
    else:
        measure(arguments.folder.absolute(), arguments.only)


if __name__ == "__main__":
    main()
