"""A million verifications from a Parquet file, plotted.

    python crates/py/examples/parquet.py                # a million rows; takes a minute on a CPU
    python crates/py/examples/parquet.py --rows 5000

Without pyarrow it says so and does nothing; without matplotlib the plot is left out.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hypergrove import PrivateKey, verify_batch

SET = "SLH-DSA-SHA2-128f"
# Signatures that differ; rows repeat them, since to sign takes as long as twelve verifications.
DISTINCT = 1000


def write(file: Path, rows: int, key: PrivateKey) -> int:
    """Rows with a message and its signature, every hundredth of which is not valid; how many those are."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    messages = [f"payment {i}".encode() for i in range(min(rows, DISTINCT))]
    signatures = list(key.sign_batch(messages))
    messages[99::100] = [b"payment of another" for _ in messages[99::100]]
    kind = pa.schema([("message", pa.binary()), ("signature", pa.binary(key.signature_size))])
    block = pa.table({"message": messages, "signature": signatures}, schema=kind)
    with parquet.ParquetWriter(file, kind, compression="none") as to:
        for first in range(0, rows, DISTINCT):
            to.write_table(block[: rows - first])
    return sum(len(range(99, min(DISTINCT, rows - first), 100)) for first in range(0, rows, DISTINCT))


def verify(file: Path, key: PrivateKey) -> list[tuple[int, int, float]]:
    """Of each batch: its rows, those that are valid, and the seconds that it took, reading included."""
    import pyarrow.parquet as parquet

    batches: list[tuple[int, int, float]] = []
    began = time.perf_counter()
    for batch in parquet.ParquetFile(file).iter_batches(batch_size=20_000):
        valid = verify_batch(key.public_key(), batch["signature"], batch["message"])
        now = time.perf_counter()
        batches.append((len(valid), sum(valid), now - began))
        began = now
    return batches


def plot(batches: list[tuple[int, int, float]], file: Path) -> None:
    import matplotlib.pyplot as pyplot

    figure: Any = pyplot.figure()
    axes: Any = figure.add_subplot(xlabel="batch", ylabel="verifications a second", title=SET)
    axes.plot([rows / seconds for rows, _, seconds in batches])
    axes.set_ylim(bottom=0)
    figure.savefig(file)
    print(f"{file}: the rate of each batch")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--plot", type=Path, default=Path("verifications.png"))
    arguments = parser.parse_args()
    try:
        import pyarrow  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError:
        sys.exit("SKIPPED: this example needs pyarrow: pip install pyarrow matplotlib")
    with tempfile.TemporaryDirectory() as folder:
        file, key = Path(folder) / "signed.parquet", PrivateKey.generate(SET)
        wrong = write(file, arguments.rows, key)
        print(f"{file.name}: {arguments.rows:,} rows, {file.stat().st_size / 1e9:.2f} GB")
        batches = verify(file, key)
    rows, valid = sum(batch[0] for batch in batches), sum(batch[1] for batch in batches)
    seconds = sum(batch[2] for batch in batches)
    assert (rows, rows - valid) == (arguments.rows, wrong), "a verdict is wrong"
    print(f"{valid:,} valid, {rows - valid:,} not, as they should be: {rows / seconds:,.0f} a second")
    try:
        plot(batches, arguments.plot)
    except ImportError:
        print("SKIPPED: the plot needs matplotlib: pip install matplotlib")


if __name__ == "__main__":
    main()
