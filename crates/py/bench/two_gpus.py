"""Two processes that split a table over two GPUs by CUDA_VISIBLE_DEVICES, and one process with one GPU.

python crates/py/bench/two_gpus.py FOLDER > crates/py/bench/two_gpus.jsonl

The folder gets signatures that are signed once; each process verifies its part of the rows, which repeat them, for six seconds. All
processes check their verdicts first: one row in each is wrong.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hypergrove
from hypergrove import Engine, PrivateKey, PublicKey, verify_batch

SET = "SLH-DSA-SHA2-128s"
ROWS = 1_048_576
DISTINCT = 8_192
WRONG = 5
SECONDS = 6.0
TURNS = 3


def work(parts: int, folder: Path) -> None:
    """One process: says when it is ready, and begins when it reads a line."""
    engine, rows = Engine(devices=["cuda:0"]), ROWS // parts
    public = PublicKey.from_pem((folder / "public.pem").read_bytes())
    signed, width = (folder / "signatures").read_bytes(), public.signature_size
    signatures, messages = engine.empty((rows, width)), engine.empty((rows, 32))
    with memoryview(signatures) as view, view.cast("B") as flat:
        for at in range(0, rows, DISTINCT):
            flat[at * width : (at + DISTINCT) * width] = signed
        flat[WRONG * width + 20] ^= 1
    with memoryview(messages) as view, view.cast("B") as flat:
        for row in range(rows):
            flat[row * 32 : row * 32 + 4] = (row % DISTINCT).to_bytes(4, "little")

    verdicts = list(verify_batch(public, signatures, messages, engine=engine))
    assert [row for row in range(rows) if not verdicts[row]] == [WRONG]
    print("ready", flush=True)
    sys.stdin.readline()
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < SECONDS:
        verify_batch(public, signatures, messages, engine=engine)
        done += rows
    print(json.dumps({"rows": done, "seconds": time.perf_counter() - start}), flush=True)


def together(gpus: list[str], folder: Path) -> list[Any]:
    """What processes did that began at the same time, one for each GPU."""
    command = [sys.executable, __file__, "work", str(len(gpus)), str(folder)]
    processes = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu},
        )
        for gpu in gpus
    ]
    lines = []
    for answer in ("ready\n", None):
        for process in processes:
            assert process.stdin and process.stdout
            if answer is None:
                lines.append(process.stdout.readline())
            else:
                assert process.stdout.readline() == answer
        for process in processes if answer else []:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
    return [json.loads(line) for line in lines]


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    key = PrivateKey.generate(SET)
    messages = [row.to_bytes(4, "little") + bytes(28) for row in range(DISTINCT)]
    (folder / "signatures").write_bytes(key.sign_batch(messages).tobytes())
    (folder / "public.pem").write_bytes(key.public_key().to_pem())
    gpus = [(model, uuid) for name, model, uuid in hypergrove.devices() if name.startswith("cuda") and uuid]
    if len(gpus) < 2:
        sys.exit(f"two GPUs of CUDA are needed, with UUIDs; here are {len(gpus)}")
    for turn in range(TURNS):
        for name, visible in [("one", ["0"]), ("two", ["0", "1"]), ("two by UUID", [uuid for _, uuid in gpus[:2]])]:
            found = together(visible, folder)
            rate = sum(of["rows"] / of["seconds"] for of in found)
            record = {"set": SET, "rows": ROWS, "device": gpus[0][0], "turn": turn, "gpus": name, "rows_per_s": rate, "processes": found}
            print(json.dumps(record), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(Path(sys.argv[1]))
