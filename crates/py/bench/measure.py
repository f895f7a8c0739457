"""What the package adds to the engine's time, on the CPU.

    python crates/py/bench/measure.py --tool target/release/hypergrove > crates/py/bench/record.json
    python crates/py/bench/measure.py --render                   # the table of docs/python.md

The tool measures what Rust's rows reach. The tool and the columns are measured in turns, so that other work of the machine meets
all of them; the fastest run of each counts.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

SET = "SLH-DSA-SHA2-128s"
ROWS = 4096
TURNS = 9
RECORD = Path(__file__).with_name("record.json")


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def commit() -> str:
    """The commit that is measured, as long as the package was built of it."""
    command = ["git", "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, cwd=Path(__file__).parent, check=True, capture_output=True, text=True).stdout.strip()


def rust_rate(tool: str) -> float:
    command = [tool, "bench", "--set", SET, "--op", "verify", "--rows", "host", "--batch", str(ROWS), "--device", "cpu"]
    ran = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
    return ROWS / float(json.loads(ran.stdout.splitlines()[0])["min_s"])


def measure(tool: str) -> dict[str, Any]:
    import numpy as np

    import hypergrove

    key = hypergrove.PrivateKey.generate(SET)
    public = key.public_key()
    messages = [i.to_bytes(32, "little") for i in range(ROWS)]
    few = list(key.sign_batch(messages[:16]))
    messages = [messages[i % 16] for i in range(ROWS)]
    # Bytes of their own: equal objects would stay in the processor's cache.
    signatures = [bytes(bytearray(few[i % 16])) for i in range(ROWS)]
    engine = hypergrove.Engine()
    packed = [engine.empty((ROWS, len(rows[0]))) for rows in (signatures, messages)]
    for array, rows in zip(packed, (signatures, messages), strict=True):
        np.asarray(array)[:] = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(array.shape)
    arrays = [np.asarray(array).copy() for array in packed]
    columns: dict[str, Callable[[], object]] = {
        "engine.empty": lambda: hypergrove.verify_batch(public, packed[0], packed[1]),
        "NumPy": lambda: hypergrove.verify_batch(public, arrays[0], arrays[1]),
        "lists of bytes": lambda: hypergrove.verify_batch(public, signatures, messages),
    }
    assert all(all(hypergrove.verify_batch(public, *pair)) for pair in (packed, arrays, (signatures, messages)))
    rust: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in columns}
    for _ in range(TURNS):
        rust.append(rust_rate(tool))
        for name, call in columns.items():
            rates[name].append(ROWS / min(seconds(call) for _ in range(4)))

    # A call that ends before the engine: arguments, the engine's place, and the way back.
    calls = 100_000
    call_us = min(seconds(lambda: [public.is_valid(b"", b"m") for _ in range(calls)]) for _ in range(TURNS)) / calls * 1e6
    # `out` is refused once the column is gathered, before the engine is called.
    many = [i.to_bytes(4, "little") for i in range(1_000_000)]

    def refused() -> None:
        try:
            key.sign_batch(many, out=arrays[0])
        except ValueError:
            pass

    gathered = min(seconds(refused) for _ in range(TURNS))
    joined = min(seconds(lambda: b"".join(many)) for _ in range(TURNS))
    code = "import time; t = time.perf_counter(); import hypergrove; print(time.perf_counter() - t)"
    imports = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(TURNS)]
    libraries = [file for file in metadata.files("hypergrove") or [] if file.suffix == ".so"]
    size = sum(Path(str(file.locate())).stat().st_size for file in libraries)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu(),
        "python": platform.python_version(),
        "commit": commit(),
        "threads": engine.threads,
        "set": SET,
        "rows": ROWS,
        "rust_per_second": max(rust),
        "per_second": {name: max(all_) for name, all_ in rates.items()},
        "call_us": call_us,
        "gather_ns": gathered / len(many) * 1e9,
        "join_ns": joined / len(many) * 1e9,
        "import_ms": statistics.median(imports) * 1e3,
        "library_mb": size / 1e6,
    }


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def table(record: dict[str, Any]) -> str:
    rust = record["rust_per_second"]
    lines = [
        f"Measured on {record['date']}: {record['cpu']}, {record['threads']} threads, Python {record['python']}.",
        "",
        "| | | of Rust's rows |",
        "| --- | ---: | ---: |",
        f"| `verify_batch`, {record['rows']:,} rows of {record['set']}: Rust's rows | {rust:,.0f}/s | |",
    ]
    for name, rate in record["per_second"].items():
        lines.append(f"| … from {name} | {rate:,.0f}/s | {100 * rate / rust:.0f} % |")
    lines += [
        f"| a call that ends before the engine: `is_valid` with an empty signature | {record['call_us']:.2f} µs | |",
        f"| a row of a list of `bytes`, without the engine's work | {record['gather_ns']:.0f} ns | |",
        f"| … for comparison, in `b\"\".join(rows)` | {record['join_ns']:.0f} ns | |",
        f"| `import hypergrove` | {record['import_ms']:.1f} ms | |",
        f"| the library | {record['library_mb']:.1f} MB | |",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", help="the command-line tool, whose `bench` measures Rust's rows")
    parser.add_argument("--render", action="store_true", help="print the table of the record")
    arguments = parser.parse_args()
    if arguments.render:
        print(table(json.loads(RECORD.read_text())))
    elif arguments.tool:
        print(json.dumps(measure(arguments.tool), indent=1))
    else:
        parser.error("give --tool or --render")


if __name__ == "__main__":
    main()
