"""Signatures in Python, one package against another, on the CPU.

    pip install pqcrypto SLH-DSA cryptography                    # with hypergrove; liboqs is optional
    python crates/py/bench/compare.py --liboqs /usr/lib/liboqs.so > crates/py/bench/compare.jsonl
    python crates/py/bench/compare.py --render                   # the table of docs/python.md

A record is a line of JSON with the fields of bench/runs. Times are CPU time of the process, which all its threads add to: other work on
the machine lengthens it less than the time of a clock. One thread computes. Packages are measured in turns, so that other work meets all
of them.

Before that, every package verifies a signature of hypergrove, hypergrove verifies one of every package, and both refuse what was
altered. Of other schemes (ML-DSA, SPHINCS+ 3.1), a package verifies its own.
"""

import argparse
import ctypes
import ctypes.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from measure import cpu

SETS = ["SLH-DSA-SHA2-128f", "SLH-DSA-SHA2-128s"]
OPS = ["keygen", "sign", "verify"]
OTHER_SCHEME = "ML-DSA-44"
MESSAGE = bytes(range(32))
RECORDS = Path(__file__).with_name("compare.jsonl")
ROUNDS = 5
# A run of many calls takes about so long.
RUN_S = 0.15
# A slow one has fewer rounds.
BUDGET_S = 8.0
MOST_JOBS = 4096


class Contender:
    """A package as a caller uses it: each function does so many jobs. `begin` makes its key."""

    batches = False

    def __init__(self, name: str, version: str, scheme: str, set_: str) -> None:
        self.name, self.scheme, self.set, self.version = name, scheme, set_, version

    def keygen(self, jobs: int) -> object:
        raise NotImplementedError

    def sign(self, jobs: int) -> bytes:
        """The last signature."""
        raise NotImplementedError

    def verify(self, jobs: int) -> bool:
        """Whether all are valid."""
        raise NotImplementedError

    def public_key(self) -> bytes:
        raise NotImplementedError

    def accepts(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        raise NotImplementedError


class Hypergrove(Contender):
    def __init__(self, set_: str, batches: bool) -> None:
        import hypergrove

        super().__init__(f"hypergrove, {'batches' if batches else 'one at a time'}", metadata.version("hypergrove"), "SLH-DSA", set_)
        self.batches, self.module = batches, hypergrove
        self.engine = hypergrove.Engine(devices="cpu", threads=1)
        self.key = hypergrove.PrivateKey.generate(set_)
        self.public = self.key.public_key()
        self.signature = self.key.sign(MESSAGE)

    def keygen(self, jobs: int) -> object:
        if self.batches:
            return self.module.keygen_batch(self.set, jobs, engine=self.engine)
        return [self.module.PrivateKey.generate(self.set, engine=self.engine) for _ in range(jobs)]

    def sign(self, jobs: int) -> bytes:
        if self.batches:
            return bytes(self.key.sign_batch([MESSAGE] * jobs, engine=self.engine)[jobs - 1])
        return [self.key.sign(MESSAGE, engine=self.engine) for _ in range(jobs)][-1]

    def verify(self, jobs: int) -> bool:
        if self.batches:
            verdicts = self.module.verify_batch(self.public, [self.signature] * jobs, [MESSAGE] * jobs, engine=self.engine)
            return all(verdicts)
        return all(self.public.is_valid(self.signature, MESSAGE, engine=self.engine) for _ in range(jobs))

    def public_key(self) -> bytes:
        return self.public.to_raw()

    def accepts(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        public = self.module.PublicKey.from_raw(self.set, public_key)
        return public.is_valid(signature, message, engine=self.engine)


class Pqcrypto(Contender):
    def __init__(self, set_: str) -> None:
        super().__init__("pqcrypto", metadata.version("pqcrypto"), "SLH-DSA", set_)
        import_module("pqcrypto.sign")
        self.module: Any = sys.modules["pqcrypto.sign." + set_.lower().replace("-", "_")]
        self.public, self.secret = self.module.keygen()
        self.signature = self.sign(1)

    def keygen(self, jobs: int) -> object:
        return [self.module.keygen() for _ in range(jobs)]

    def sign(self, jobs: int) -> bytes:
        return bytes([self.module.sign(self.secret, MESSAGE) for _ in range(jobs)][-1])

    def verify(self, jobs: int) -> bool:
        return all(self.module.verify(self.public, MESSAGE, self.signature) is None for _ in range(jobs))

    def public_key(self) -> bytes:
        return bytes(self.public)

    def accepts(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        try:
            self.module.verify(public_key, message, signature)
        except Exception as why:
            if type(why).__name__ != "InvalidSignatureError":
                raise
            return False
        return True


class SlhDsa(Contender):
    def __init__(self, set_: str) -> None:
        super().__init__("SLH-DSA", metadata.version("SLH-DSA"), "SLH-DSA", set_)
        self.module: Any = import_module("slhdsa")
        self.parameters = getattr(self.module, set_.lower().removeprefix("slh-dsa-").replace("-", "_"))
        self.pair = self.module.KeyPair.gen(self.parameters)
        self.signature = self.sign(1)

    def keygen(self, jobs: int) -> object:
        return [self.module.KeyPair.gen(self.parameters) for _ in range(jobs)]

    def sign(self, jobs: int) -> bytes:
        return bytes([self.pair.sec.sign_pure(MESSAGE, True) for _ in range(jobs)][-1])

    def verify(self, jobs: int) -> bool:
        return all(self.pair.pub.verify_pure(MESSAGE, self.signature) for _ in range(jobs))

    def public_key(self) -> bytes:
        return bytes(self.pair.pub.digest())

    def accepts(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        public = self.module.PublicKey.from_digest(public_key, self.parameters)
        return bool(public.verify_pure(message, signature))


class Liboqs(Contender):
    """The library behind liboqs-python, by ctypes as that package calls it: the package itself wants a liboqs of its own version.

    liboqs 0.14 and newer has SLH-DSA. Older ones have SPHINCS+ 3.1, which hashes as much and takes the digest's bits in another order:
    its signatures are valid for itself alone.
    """

    def __init__(self, set_: str, path: str | None) -> None:
        place = path or ctypes.util.find_library("oqs")
        if place is None:
            raise ImportError("liboqs is not installed; name it by --liboqs")
        self.library = ctypes.CDLL(place)
        self.library.OQS_version.restype = ctypes.c_char_p
        self.library.OQS_SIG_new.restype = ctypes.c_void_p
        self.library.OQS_init()
        version = self.library.OQS_version().decode()
        super().__init__("liboqs", version, "SLH-DSA", set_)
        variant = set_.removeprefix("SLH-DSA-")
        names = {"SLH_DSA_PURE_" + variant.upper().replace("-", "_"): "SLH-DSA", f"SPHINCS+-{variant}-simple": "SPHINCS+"}
        found = [(self.library.OQS_SIG_new(name.encode()), scheme) for name, scheme in names.items()]
        mechanism, self.scheme = next(pair for pair in found if pair[0])
        if self.scheme == "SPHINCS+":
            self.name = "SPHINCS+ 3.1 by liboqs"
        self.mechanism = ctypes.c_void_p(mechanism)
        self.size = {"SLH-DSA-SHA2-128f": 17088, "SLH-DSA-SHA2-128s": 7856}[set_]
        self.public, self.secret = self.pair()
        self.signature = self.sign(1)

    def pair(self) -> tuple[bytes, bytes]:
        public, secret = ctypes.create_string_buffer(32), ctypes.create_string_buffer(64)
        assert self.library.OQS_SIG_keypair(self.mechanism, public, secret) == 0
        return public.raw, secret.raw

    def keygen(self, jobs: int) -> object:
        return [self.pair() for _ in range(jobs)]

    def sign(self, jobs: int) -> bytes:
        return [self.sign_one(MESSAGE) for _ in range(jobs)][-1]

    def sign_one(self, message: bytes) -> bytes:
        signature, size = ctypes.create_string_buffer(self.size), ctypes.c_size_t(self.size)
        arguments = (message, ctypes.c_size_t(len(message)), self.secret)
        assert self.library.OQS_SIG_sign(self.mechanism, signature, ctypes.byref(size), *arguments) == 0
        return signature.raw[: size.value]

    def verify(self, jobs: int) -> bool:
        return all(self.accepts(self.public, self.signature, MESSAGE) for _ in range(jobs))

    def public_key(self) -> bytes:
        return self.public

    def accepts(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        sizes = (ctypes.c_size_t(len(message)), ctypes.c_size_t(len(signature)))
        return bool(self.library.OQS_SIG_verify(self.mechanism, message, sizes[0], signature, sizes[1], public_key) == 0)


class Cryptography(Contender):
    def __init__(self) -> None:
        super().__init__("cryptography", metadata.version("cryptography"), "ML-DSA", OTHER_SCHEME)
        self.module: Any = import_module("cryptography.hazmat.primitives.asymmetric.mldsa")
        self.invalid: Any = import_module("cryptography.exceptions").InvalidSignature
        self.key = self.module.MLDSA44PrivateKey.generate()
        self.public = self.key.public_key()
        self.signature = self.sign(1)

    def keygen(self, jobs: int) -> object:
        return [self.module.MLDSA44PrivateKey.generate() for _ in range(jobs)]

    def sign(self, jobs: int) -> bytes:
        return bytes([self.key.sign(MESSAGE) for _ in range(jobs)][-1])

    def verify(self, jobs: int) -> bool:
        return all(self.public.verify(self.signature, MESSAGE) is None for _ in range(jobs))

    def public_key(self) -> bytes:
        return bytes(self.public.public_bytes_raw())

    def accepts(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        try:
            self.module.MLDSA44PublicKey.from_public_bytes(public_key).verify(signature, message)
        except self.invalid:
            return False
        return True


def contenders(set_: str, liboqs: str | None) -> Iterator[Contender]:
    makers: list[Callable[[], Contender]] = [lambda: Pqcrypto(set_), lambda: Liboqs(set_, liboqs), lambda: SlhDsa(set_)]
    if set_ == OTHER_SCHEME:
        makers = [Cryptography]
    else:
        yield from (Hypergrove(set_, False), Hypergrove(set_, True))
    for make in makers:
        try:
            yield make()
        except ImportError as why:
            print(f"left out: {why}", file=sys.stderr)


def check(all_: list[Contender]) -> None:
    """Signatures are valid, and altered ones are not."""
    first = all_[0]
    for signer in all_:
        signature = signer.sign(1)
        altered = bytes([signature[0] ^ 1]) + signature[1:]
        # Those of hypergrove, which is the first, by all; others' by themselves and by hypergrove.
        verifiers = all_ if signer is first else [first, signer]
        for verifier in (one for one in verifiers if one.scheme == signer.scheme):
            public = signer.public_key()
            assert verifier.accepts(public, signature, MESSAGE), f"{verifier.name} refuses a signature of {signer.name}"
            for wrong in [(altered, MESSAGE), (signature, MESSAGE + b"x")]:
                assert not verifier.accepts(public, *wrong), f"{verifier.name} accepts an altered signature of {signer.name}"


def jobs_of(call: Callable[[int], object]) -> tuple[int, float]:
    """How many jobs fill a run, and how long they take."""
    jobs = 1
    while True:
        began = time.process_time()
        call(jobs)
        seconds = time.process_time() - began
        if seconds > RUN_S / 2 or jobs == MOST_JOBS:
            return jobs, seconds
        jobs *= 2


def measure(set_: str, liboqs: str | None) -> Iterator[dict[str, Any]]:
    all_ = list(contenders(set_, liboqs))
    check(all_)
    for op in OPS:
        calls = [getattr(one, op) for one in all_]
        sizes = [jobs_of(call) for call in calls]
        times: list[list[float]] = [[] for _ in all_]
        load = os.getloadavg()[0]
        for round_ in range(ROUNDS):
            for (jobs, estimate), call, seen in zip(sizes, calls, times, strict=True):
                if round_ >= 3 and (round_ + 1) * estimate > BUDGET_S:
                    continue
                began = time.process_time()
                answer = call(jobs)
                seen.append(time.process_time() - began)
                assert answer, f"{op} gives {answer!r}"
        for one, (jobs, _), seen in zip(all_, sizes, times, strict=True):
            yield record(one, op, jobs, seen, load)


def record(one: Contender, op: str, jobs: int, seen: list[float], load: float) -> dict[str, Any]:
    # A call is one job, or the batch.
    batch = jobs if one.batches else 1
    times = sorted(seconds * batch / jobs for seconds in seen)
    median = statistics.median(times)
    quartiles = statistics.quantiles(times, n=4, method="inclusive")
    return {
        "scheme": one.scheme,
        "set": one.set,
        "op": op,
        "batch": batch,
        "backend": one.name,
        "device": cpu(),
        "threads": 1,
        "clock": "cpu",
        "median_s": median,
        "min_s": times[0],
        "spread": (quartiles[2] - quartiles[0]) / median,
        "runs": len(times),
        "times_s": times,
        "ops_per_s": batch / median,
        "verified": True,
        "message_bytes": len(MESSAGE),
        "version": one.version,
        "python": sys.version.split()[0],
        "date": time.strftime("%Y-%m-%d"),
        "load": load,
    }


def table(records: list[dict[str, Any]]) -> str:
    one = records[0]
    loads = [record["load"] for record in records]
    lines = [
        f"Measured on {one['date']}: {one['device']}, Python {one['python']}, one thread, a second of CPU time. The machine was not quiet: its load",
        f"average was {min(loads):.1f} to {max(loads):.1f}. The median of {max(record['runs'] for record in records)} runs, and half the distance between the quartiles.",
    ]
    for set_ in [*SETS, OTHER_SCHEME]:
        of_set = [record for record in records if record["set"] == set_]
        lines += ["", f"| {set_} | key pairs/s | signatures/s | verifications/s |", "| --- | ---: | ---: | ---: |"]
        for name, version in dict.fromkeys((record["backend"], record["version"]) for record in of_set):
            cells = {record["op"]: cell(record) for record in of_set if record["backend"] == name}
            shown = name if name.startswith("hypergrove") else f"{name} {version}"
            lines.append(f"| {shown} | {' | '.join(cells[op] for op in OPS)} |")
    return "\n".join(lines)


def cell(record: dict[str, Any]) -> str:
    rate = record["ops_per_s"]
    digits = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
    return f"{digits} ± {50 * record['spread']:.0f} %"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--render", action="store_true", help="print the table of the records")
    parser.add_argument("--liboqs", help="the shared library of liboqs, where the system does not find it")
    arguments = parser.parse_args()
    if arguments.render:
        print(table([json.loads(line) for line in RECORDS.read_text().splitlines()]))
        return
    for set_ in [*SETS, OTHER_SCHEME]:
        for one in measure(set_, arguments.liboqs):
            print(json.dumps(one), flush=True)


if __name__ == "__main__":
    main()
