"""One story of Ray or Spark, in a process of its own; test_clusters.py runs them all.

    python clusters.py STORY FOLDER

Each compares the tables, sorted by row, with what one process makes of them.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as parquet

import hypergrove.ray
import hypergrove.spark
from hypergrove import PrivateKey, arrow

SET = "SLH-DSA-SHA2-128f"
ROWS, GROUP = 16_000, 400
STORIES: dict[str, Callable[[Path], None]] = {}


def story(function: Callable[[Path], None]) -> Callable[[Path], None]:
    STORIES[function.__name__] = function
    return function


def data(folder: Path) -> tuple[Path, Any]:
    """A file in which each kind of row occurs, and what one process makes of it."""
    key, wide, path = PrivateKey.generate(SET), 2000, folder / "signed.parquet"
    (folder / "key.pem").write_bytes(key.to_pem())
    public = key.public_key().to_raw()
    messages: list[bytes | None] = [b"message %d" % i for i in range(wide)]
    signatures: list[bytes | None] = list(map(bytes, key.sign_batch(messages)))
    keys: list[bytes | None] = [public] * wide
    # Poisoned rows: none of them may end another's.
    messages[100], messages[200], messages[300] = None, b"another", bytes(64 << 20)
    signatures[400], signatures[500], signatures[600] = None, b"", bytes(100_000)
    keys[700], keys[800], keys[900], keys[1000] = None, b"", bytes(1000), bytes(32)
    schema = pa.schema([("row", pa.int64()), *((name, pa.binary()) for name in ("message", "signature", "public_key"))])
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=["public_key"]) as file:
        for first in range(0, ROWS, wide):
            rows = range(first, first + wide)
            columns = {"row": rows, "message": messages, "signature": signatures, "public_key": keys}
            file.write_table(pa.table(columns, schema=schema), row_group_size=GROUP)
            # One message of 64 MiB is enough.
            messages[300] = b"short"
    whole = arrow.verify(parquet.read_table(path), set=SET, status="status")
    assert whole["valid"].null_count == 5 * ROWS // wide, whole["valid"].null_count
    return path, whole.select(["row", "valid", "status"])


def check(tables: Iterable[Any], expected: Any) -> None:
    got = pa.concat_tables(tables).select(expected.schema.names).sort_by("row")
    assert got.num_rows == expected.num_rows, (got.num_rows, expected.num_rows)
    assert got.combine_chunks() == expected.combine_chunks(), "a verdict differs"


def processes(title: str) -> list[int]:
    """The descendants of this process whose command line has this title."""
    parents, titles = {}, {}
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit():
                parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                titles[int(place.name)] = (place / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            pass

    def is_ours(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and is_ours(parents[pid]))

    return [pid for pid, text in titles.items() if title in text and is_ours(pid)]


def kill(title: str) -> None:
    victims = processes(title)
    assert victims, f"no process is called {title}"
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    print(f"killed {len(victims)} of {title}")


def init(address: str = "local", **options: Any) -> None:
    import ray

    # No cluster that another program has left.
    ray.init(address, log_to_driver=False, **options)
    ray.data.DataContext.get_current().enable_progress_bars = False


def verified(path: Path, disturb: Callable[[], None] = lambda: None, **options: Any) -> list[Any]:
    """Verdicts of Ray. After the first block, something happens."""
    import ray

    dataset = hypergrove.ray.verify(ray.data.read_parquet(str(path)), set=SET, status="status", **options)
    tables = []
    for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
        tables.append(table.select(["row", "valid", "status"]))
        if len(tables) == 1:
            disturb()
    return tables


@story
def small_clusters(folder: Path) -> None:
    """No cluster is too small, and stages after each other find actors."""
    import ray
    from ray.cluster_utils import Cluster

    path, expected = data(folder)
    key = folder / "key.pem"
    public = PrivateKey.from_pem(key.read_bytes()).public_key()
    for nodes in ([1], [2], [3], [1, 1], [2, 1]):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": nodes[0], "object_store_memory": 500 << 20})
        for cpus in nodes[1:]:
            cluster.add_node(num_cpus=cpus, object_store_memory=500 << 20)
        init(cluster.address)
        began = time.perf_counter()
        check(verified(path), expected)
        dataset = ray.data.read_parquet(str(path)).select_columns(["row", "message"]).limit(200)
        signed = hypergrove.ray.sign(hypergrove.ray.sha256(dataset), key=str(key), batch_size=50)
        assert hypergrove.ray.verify(signed, public_key=public).sum("valid") == 199
        print(f"nodes of {nodes} CPUs: {time.perf_counter() - began:.1f} s")
        ray.shutdown()
        cluster.shutdown()


@story
def a_worker_is_killed(folder: Path) -> None:
    path, expected = data(folder)
    init(num_cpus=2)
    check(verified(path, lambda: kill("MapBatches(_task)")), expected)


@story
def a_signer_is_killed(folder: Path) -> None:
    import ray

    path, _ = data(folder)
    key = folder / "key.pem"
    rows = parquet.read_table(path, columns=["row", "message"]).filter(pa.compute.field("row") < 2000)
    init(num_cpus=2)
    dataset = hypergrove.ray.sign(ray.data.from_arrow(rows), key=key, deterministic=True, batch_size=100)
    tables = []
    for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
        tables.append(table)
        if len(tables) == 1:
            kill("ray::MapWorker")
    check(tables, arrow.sign(rows, key=key, deterministic=True))


@story
def a_node_leaves(folder: Path) -> None:
    import ray
    from ray.cluster_utils import Cluster

    path, expected = data(folder)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 500 << 20})
    others = [cluster.add_node(num_cpus=1, object_store_memory=500 << 20) for _ in range(2)]
    init(cluster.address)
    check(verified(path, lambda: cluster.remove_node(others[0], allow_graceful=False)), expected)
    until = time.monotonic() + 60
    while sum(node["Alive"] for node in ray.nodes()) != 2:
        assert time.monotonic() < until, "no node has left"
        time.sleep(0.1)
    ray.shutdown()
    cluster.shutdown()


@story
def blocks_are_spilled(folder: Path) -> None:
    """The object store is smaller than the data, all of which is kept."""
    import ray

    path, expected = data(folder)
    spilled = folder / "spilled"
    init(num_cpus=2, object_store_memory=160 << 20, object_spilling_directory=str(spilled))
    dataset = hypergrove.ray.verify(ray.data.read_parquet(str(path)), set=SET, status="status").materialize()
    assert any(file.is_file() for file in spilled.rglob("*")), "nothing was spilled"
    check(dataset.iter_batches(batch_size=None, batch_format="pyarrow"), expected)


@story
def a_key_stays_in_its_worker(folder: Path) -> None:
    """What Ray pickles, stores and prints has no secret, when signing succeeds and when it fails."""
    import ray

    path, _ = data(folder)
    # The path of a Unix socket has at most 107 bytes, of which Ray adds about 60 to its folder.
    of_ray = Path(tempfile.mkdtemp(prefix="ray"))
    init(num_cpus=2, object_store_memory=160 << 20, _temp_dir=str(of_ray))
    pem = (folder / "key.pem").read_bytes()
    secrets = [PrivateKey.from_pem(pem).to_raw()[:48], pem.splitlines()[1]]
    rows = ray.data.read_parquet(str(path)).select_columns(["message"]).limit(100)
    assert hypergrove.ray.sign(rows, key=lambda: PrivateKey.from_pem(open(folder / "key.pem", "rb").read())).count() == 100
    (folder / "broken.pem").write_bytes(pem.replace(b"-----END", b"A-----END"))
    for key in (str(folder / "broken.pem"), lambda: pem):
        try:
            hypergrove.ray.sign(rows, key=key).count()
        except Exception as why:
            assert not any(secret in str(why).encode() for secret in secrets), "an error has the secret"
        else:
            raise AssertionError("a broken key signs")
    held = PrivateKey.from_pem(pem)
    try:
        hypergrove.ray.sign(rows, key=lambda: held).count()
    except TypeError as why:
        assert "private keys do not pickle" in str(why), why
    else:
        raise AssertionError("a function took its key along")
    ray.shutdown()
    files = [file for file in of_ray.rglob("*") if file.is_file()]
    assert files, "Ray has no logs"
    for file in files:
        assert not any(secret in file.read_bytes() for secret in secrets), file
    shutil.rmtree(of_ray)


@story
def spark(folder: Path) -> None:
    """Columns, options and errors; a Python worker is killed in the middle."""
    import threading

    from pyspark.sql import SparkSession

    path, expected = data(folder)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # A task is tried four times.
    builder = SparkSession.builder.master("local[2,4]").config("spark.sql.execution.arrow.maxRecordsPerBatch", 400)
    session = builder.config("spark.ui.enabled", "false").config("spark.driver.memory", "3g").getOrCreate()
    frame = session.read.parquet(str(path)).repartition(16)
    check([hypergrove.spark.verify(frame, set=SET, status="status").select("row", "valid", "status").toArrow()], expected)
    killer = threading.Timer(2.0, kill, ["pyspark.daemon"])
    killer.start()
    check([hypergrove.spark.verify(frame, set=SET, status="status").select("row", "valid", "status").toArrow()], expected)
    killer.join()
    rows = frame.select("row", "message").filter("row < 200")
    key = folder / "key.pem"
    signed = hypergrove.spark.sign(hypergrove.spark.sha256(rows), key=str(key))
    public = PrivateKey.from_pem(key.read_bytes()).public_key()
    counts = hypergrove.spark.verify(signed, public_key=public, output="ok").groupBy("ok").count().collect()
    assert {row["ok"]: row["count"] for row in counts} == {True: 199, None: 1}, counts
    for options in ({"signature": "mark", "set": SET}, {}, {"set": SET, "output": "row"}):
        try:
            hypergrove.spark.verify(frame, **options)
        except (TypeError, ValueError) as why:
            print(why)
        else:
            raise AssertionError(f"{options} pass")
    session.stop()


def main() -> None:
    STORIES[sys.argv[1]](Path(sys.argv[2]))


if __name__ == "__main__":
    main()
