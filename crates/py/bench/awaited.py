"""What awaiting costs: verify_async of many callers, where Rust's callers wait for tickets.

    python crates/py/bench/awaited.py --tool target/release/hypergrove > crates/py/bench/awaited.json
    python crates/py/bench/awaited.py --render                   # the table of docs/python.md

A caller brings one signature at a time. Python's callers are tasks of one loop. Rust's callers are threads that wait (`hypergrove bench
--callers`), or are held by one thread (`--held`), as a loop holds its tasks. They take turns, so that other work of the machine meets all of
them; medians count. Each verdict is checked.
"""

import argparse
import asyncio
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from measure import commit, cpu

SETS = ["SLH-DSA-SHA2-128s", "SLH-DSA-SHA2-128f"]
CALLERS = [1, 16, 256, 3000]
TURNS = 7
SECONDS = 0.5
RECORD = Path(__file__).with_name("awaited.json")


def tool_rate(tool: str, set: str, callers: int, *options: str) -> float:
    command = [tool, "bench", "--set", set, "--op", "verify", "--device", "cpu", "--callers", str(callers), *options]
    ran = subprocess.run([*command, "--seconds", str(SECONDS), "--json"], check=True, capture_output=True, text=True)
    return float(json.loads(ran.stdout.splitlines()[0])["ops_per_s"])


async def awaited_rate(public: Any, pairs: list[tuple[bytes, bytes]], callers: int, seconds: float) -> float:
    """Verifications a second by so many tasks."""
    done, is_counted, is_over = 0, False, False

    async def caller(number: int) -> None:
        nonlocal done
        while not is_over:
            number = (number + 1) % len(pairs)
            await public.verify_async(*pairs[number])
            done += 1

    tasks = [asyncio.ensure_future(caller(number)) for number in range(callers)]
    await asyncio.sleep(min(seconds, 0.3))
    began, before = time.perf_counter(), done
    await asyncio.sleep(seconds)
    rate = (done - before) / (time.perf_counter() - began)
    is_over = True
    await asyncio.gather(*tasks)
    return rate


def blocking_rate(public: Any, pairs: list[tuple[bytes, bytes]], seconds: float) -> float:
    """Verifications a second by calls that wait."""
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        assert public.is_valid(*pairs[done % len(pairs)])
        done += 1
    return done / (time.perf_counter() - began)


def measure(tool: str) -> dict[str, Any]:
    import hypergrove

    engine = hypergrove.Engine(devices="cpu")
    rates: dict[tuple[str, int], dict[str, list[float]]] = {}
    for set in SETS:
        key = hypergrove.PrivateKey.generate(set)
        public = key.public_key()
        messages = [i.to_bytes(32, "little") for i in range(16)]
        pairs = list(zip(map(bytes, key.sign_batch(messages)), messages, strict=True))
        for _ in range(TURNS):
            for callers in CALLERS:
                of = rates.setdefault((set, callers), {})
                of.setdefault("awaited", []).append(asyncio.run(awaited_rate(public, pairs, callers, SECONDS)))
                if callers == 1:
                    of.setdefault("blocking", []).append(blocking_rate(public, pairs, SECONDS))
                else:
                    of.setdefault("waiting", []).append(tool_rate(tool, set, callers))
                    of.setdefault("held", []).append(tool_rate(tool, set, callers, "--held", "1"))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": cpu(),
        "python": platform.python_version(),
        "commit": commit(),
        "threads": engine.threads,
        "rows": [
            {"set": set, "callers": callers, **{name: statistics.median(all_) for name, all_ in of.items()}}
            for (set, callers), of in rates.items()
        ],
    }


def table(record: dict[str, Any]) -> str:
    lines = [
        f"Measured on {record['date']}: {record['cpu']}, {record['threads']} threads, Python {record['python']}. Verifications a second.",
        "",
        "| | callers | `verify_async` | Rust's threads that wait | of it | one of Rust's threads holds all | of it |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    many = [row for row in record["rows"] if "waiting" in row]
    for row in many:
        rate = row["awaited"]
        others = [f"{row[way]:,.0f} | {100 * rate / row[way]:.0f} %" for way in ("waiting", "held")]
        lines.append(f"| {row['set']} | {row['callers']:,} | {rate:,.0f} | {' | '.join(others)} |")
    lines += ["", "| one caller | `verify_async` | `is_valid` | more for each call |", "| --- | ---: | ---: | ---: |"]
    for row in record["rows"]:
        if row not in many:
            more = 1e6 / row["awaited"] - 1e6 / row["blocking"]
            lines.append(f"| {row['set']} | {row['awaited']:,.0f} | {row['blocking']:,.0f} | {more:.0f} µs |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tool", help="the command-line tool, whose `bench` measures Rust's callers")
    parser.add_argument("--render", action="store_true", help="print the table of the record")
    arguments = parser.parse_args()
    if arguments.render:
        print(table(json.loads(RECORD.read_text())))
    elif arguments.tool:
        json.dump(measure(arguments.tool), sys.stdout, indent=1)
        print()
    else:
        parser.error("give --tool or --render")


if __name__ == "__main__":
    main()
