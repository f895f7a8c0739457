"""Threads, forks and Ctrl-C."""

import asyncio
import gc
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import SET

from hypergrove import Engine, InvalidSignature, PrivateKey, sha256_batch, verify_batch, zkdilithium


def test_threads_share_an_engine(key: PrivateKey) -> None:
    public = key.public_key()

    def work(number: int) -> list[bool]:
        messages = [bytes([number, i]) for i in range(10)]
        signatures = key.sign_batch(messages)
        assert public.is_valid(key.sign(messages[0]), messages[0])
        return list(verify_batch(public, signatures, messages))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(32))) == [[True] * 10] * 32


def test_other_threads_run_meanwhile(key: PrivateKey) -> None:
    ended, count = threading.Event(), 0

    def tick() -> None:
        nonlocal count
        while not ended.wait(0.002):
            count += 1

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.monotonic()
    while time.monotonic() - began < 1:
        key.sign_batch([b"m"] * 200)
    ended.set()
    thread.join()
    assert count > 50


def test_memory_that_changes_during_a_call(key: PrivateKey) -> None:
    """Verdicts may be of either content; nothing else happens."""
    messages = np.zeros((400, 64), dtype=np.uint8)
    signatures = np.asarray(key.sign_batch([bytes(64)] * 400)).copy()
    out, ended = np.zeros((400, 32), dtype=np.uint8), threading.Event()

    def write() -> None:
        while not ended.is_set():
            messages[:] += 1
            signatures[:, 5000] += 1
            out[:] = 7

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(10):
        verdicts = verify_batch(key.public_key(), signatures, messages)
        assert set(verdicts) <= {True, False}
        sha256_batch(messages, out=out)
    ended.set()
    thread.join()


def test_an_array_in_use_gives_no_view(key: PrivateKey) -> None:
    array = Engine().empty((1000, key.signature_size))
    began = threading.Event()

    def sign() -> None:
        began.set()
        key.sign_batch([b"m"] * 1000, out=array)

    thread = threading.Thread(target=sign)
    thread.start()
    began.wait()
    refused = 0
    while thread.is_alive():
        try:
            memoryview(array).release()
        except BufferError as why:
            assert "in use" in str(why)
            refused += 1
            # NumPy asks in another way too, and must not make an array of one object.
            try:
                assert np.asarray(array).shape == array.shape
            except BufferError as second:
                assert "in use" in str(second)
        time.sleep(0.001)
    thread.join()
    assert refused
    assert list(verify_batch(key.public_key(), array, [b"m"] * 1000)) == [True] * 1000


def test_asyncio(key: PrivateKey) -> None:
    async def main() -> list[bytes]:
        return list(await asyncio.gather(*(asyncio.to_thread(key.sign, bytes([i])) for i in range(8))))

    signatures = asyncio.run(main())
    assert list(verify_batch(key.public_key(), signatures, [bytes([i]) for i in range(8)])) == [True] * 8


def test_awaited_signatures(key: PrivateKey) -> None:
    public, messages = key.public_key(), [i.to_bytes(2, "big") for i in range(300)]

    async def main() -> None:
        signatures = await asyncio.gather(*(key.sign_async(message, b"context") for message in messages))
        assert list(verify_batch(public, signatures, messages, context=b"context")) == [True] * 300
        same = key.sign(b"m", prehash="SHA2-256", deterministic=True)
        assert await key.sign_async(b"m", prehash="SHA2-256", deterministic=True) == same
        assert await asyncio.wait_for(key.sign_async(b"m"), 30)

        # Those that are cancelled neither come nor disturb the others.
        futures = [key.sign_async(message) for message in messages]
        # A signature that was there before its future was returned cannot be cancelled.
        cancelled = {i for i in range(1, 300, 2) if futures[i].cancel()}
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert cancelled
        assert cancelled == {i for i in range(300) if isinstance(results[i], asyncio.CancelledError)}
        signed = [i for i in range(300) if i not in cancelled]
        assert all(verify_batch(public, [results[i] for i in signed], [messages[i] for i in signed]))

        raw = bytearray(key.to_raw())
        raw[-1] ^= 1
        with pytest.raises(ValueError, match="damaged"):
            await PrivateKey.from_raw(SET, raw).sign_async(b"m")
        for arguments in [(None,), ("text",), (b"m", "text")]:
            with pytest.raises(TypeError):
                key.sign_async(*arguments)
        with pytest.raises(ValueError, match="256"):
            await key.sign_async(b"m", bytes(256))

        # An engine goes while its tickets are under way: they end, one way or the other.
        engine = Engine(threads=2)
        orphans = [key.sign_async(message, engine=engine) for message in messages[:20]]
        del engine
        for ended in await asyncio.gather(*orphans, return_exceptions=True):
            assert isinstance(ended, (bytes, RuntimeError))

    asyncio.run(main(), debug=True)
    with pytest.raises(RuntimeError, match="no running event loop"):
        key.sign_async(b"m")


def test_awaited_verdicts(key: PrivateKey) -> None:
    public, messages = key.public_key(), [bytes([i]) for i in range(40)]
    signatures = list(key.sign_batch(messages, context=b"c"))

    async def main() -> None:
        pairs = list(zip(signatures, messages, strict=True))
        assert await asyncio.gather(*(public.verify_async(*pair, b"c") for pair in pairs)) == [None] * 40
        # Every other one is another message's.
        mixed = [(signature, messages[i ^ (i & 1)]) for i, signature in enumerate(signatures)]
        found = await asyncio.gather(*(public.verify_async(*pair, b"c") for pair in mixed), return_exceptions=True)
        assert [type(verdict) for verdict in found] == [type(None), InvalidSignature] * 20
        with pytest.raises(InvalidSignature, match=SET):
            await public.verify_async(signatures[0][:-1], messages[0], b"c")
        with pytest.raises(InvalidSignature):
            await public.verify_async(signatures[0], messages[0], b"c", prehash="SHA2-256")
        public.verify_async(*pairs[0], b"c").cancel()
        for arguments in [(None, b"m"), (b"", "text"), (b"", b"m", "text")]:
            with pytest.raises(TypeError):
                public.verify_async(*arguments)
        with pytest.raises(ValueError, match="256"):
            public.verify_async(signatures[0], b"m", bytes(256))

    asyncio.run(main(), debug=True)


def test_awaited_zkdilithium() -> None:
    key = zkdilithium.PrivateKey.generate()
    public, messages = key.public_key(), [i.to_bytes(2, "big") for i in range(100)]

    async def main() -> None:
        signatures = await asyncio.gather(*(key.sign_async(message) for message in messages))
        assert signatures[7] == key.sign(messages[7])
        pairs = zip(signatures, messages, strict=True)
        assert await asyncio.gather(*(public.verify_async(*pair) for pair in pairs)) == [None] * 100
        for wrong in [signatures[1], signatures[0][:-1], b""]:
            with pytest.raises(InvalidSignature, match="zkDilithium"):
                await public.verify_async(wrong, messages[0])
        key.sign_async(b"m").cancel()

    asyncio.run(main(), debug=True)


def test_a_loop_that_is_closed_early(key: PrivateKey) -> None:
    loop = asyncio.new_event_loop()

    async def leave() -> None:
        for i in range(50):
            key.sign_async(bytes([i]))

    loop.run_until_complete(leave())
    loop.close()
    time.sleep(0.5)
    # The engine is as good as before.
    assert key.public_key().is_valid(key.sign(b"m"), b"m")


def test_an_abandoned_future_keeps_no_loop(key: PrivateKey) -> None:
    loops = []
    for _ in range(10):
        loop = asyncio.new_event_loop()

        async def leave() -> None:
            key.sign_async(b"m")

        loop.run_until_complete(leave())
        loop.close()
        loops.append(weakref.ref(loop))
    del loop
    until = time.monotonic() + 60
    while any(loop() is not None for loop in loops) and time.monotonic() < until:
        time.sleep(0.05)
        gc.collect()
    assert [loop() for loop in loops] == [None] * 10


DAEMONS = f"""
import ctypes, threading, time
import numpy as np
from hypergrove import PrivateKey, keygen_batch
# Something that takes long between Python's end and the process's.
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.sleep, ctypes.c_void_p(1), None)
key = PrivateKey.generate("{SET}")
messages = np.zeros((2000, 10), np.uint8)
calls = [lambda: key.sign_batch([b"m"] * 2000), lambda: key.sign_batch(messages), lambda: keygen_batch("{SET}", 30_000)]
for call in calls:
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.3)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it calls glibc's functions")
def test_python_ends_while_daemon_threads_are_in_calls() -> None:
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", DAEMONS], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran


@pytest.mark.parametrize("engine", ["None", "Engine(threads=2)"])
def test_python_ends_while_signatures_are_awaited(engine: str) -> None:
    code = f"""
import asyncio
from hypergrove import Engine, PrivateKey
key, engine = PrivateKey.generate("{SET}"), {engine}
async def leave():
    global kept
    kept = [key.sign_async(bytes([i]), engine=engine) for i in range(100)]
asyncio.new_event_loop().run_until_complete(leave())
"""
    for _ in range(5):
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_the_queue_of_tickets_is_bounded(key: PrivateKey) -> None:
    async def main() -> None:
        futures = []
        try:
            with pytest.raises(BlockingIOError, match="queue"):
                for _ in range(300_000):
                    futures.append(key.sign_async(b"m"))
        finally:
            for future in futures:
                future.cancel()

    asyncio.run(main())


def in_child(work: Callable[[], None]) -> None:
    """Does the work in a forked child, which must end well and soon."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as why:
            print(f"in the child: {why!r}", file=sys.stderr, flush=True)
            os._exit(1)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork(key: PrivateKey) -> None:
    mine = Engine(threads=2)
    array = mine.empty((2, key.signature_size))
    messages = [b"a", b"b"]
    assert list(verify_batch(key.public_key(), key.sign_batch(messages, engine=mine), messages)) == [True] * 2

    def child() -> None:
        # The default engine is made anew; the parent's own is refused.
        signatures = key.sign_batch(messages)
        assert list(verify_batch(key.public_key(), signatures, messages)) == [True] * 2
        with pytest.raises(RuntimeError, match="make a new engine"):
            key.sign_batch(messages, engine=mine)
        with pytest.raises(RuntimeError, match="make a new engine"):
            key.sign(b"m", engine=mine)
        fresh = Engine(threads=2)
        assert key.public_key().is_valid(key.sign(b"m", engine=fresh), b"m", engine=fresh)
        nonlocal array
        del array

    in_child(child)
    # A child of a child.
    in_child(lambda: in_child(child))
    key.sign_batch(messages, out=array, engine=mine)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(digest, [b"a", b"b"]) == [sha256_batch([b"a"])[0], sha256_batch([b"b"])[0]]


def digest(message: bytes) -> bytes:
    return bytes(sha256_batch([message])[0])


INTERRUPTED = f"""
import signal, threading, time, os
import numpy as np
from hypergrove import PrivateKey, Engine, keygen_batch, sha256_batch, verify_batch
key = PrivateKey.generate("{SET}")
out = Engine().empty((1 << 20, 32))
signatures = key.sign_batch([b"m"])[0]
calls = [
    lambda: key.sign_batch([b"m"] * 40_000),
    lambda: verify_batch(key.public_key(), [signatures] * 2_000_000, [b"m"] * 2_000_000),
    lambda: keygen_batch("{SET}", 3_000_000),
    # Part by part, since others can write to these.
    lambda: verify_batch(key.public_key(), [bytearray(signatures)] * 400_000, [b"m"] * 400_000),
    lambda: sha256_batch([bytearray(1 << 20)] * 100_000),
    lambda: key.sign_batch([b"m"] * 10_000, out=seen),
]
signalled = 0

def handle(number, frame):
    global signalled
    signalled = time.monotonic()
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, handle)
seen = np.full((10_000, key.signature_size), 7, dtype=np.uint8)
for call in calls:
    threading.Timer(0.8, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    try:
        call()
        print("it was not interrupted", time.monotonic() - began)
    except KeyboardInterrupt:
        # The handler does not wait for what is being computed.
        print("interrupted" if signalled - began < 3 and time.monotonic() - began < 20 else "late")
assert key.public_key().is_valid(key.sign(b"m"), b"m")
signed = seen.any(axis=1)
assert not signed[-1] and all(verify_batch(key.public_key(), seen[signed], [b"m"] * int(signed.sum())))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of Windows are others")
def test_ctrl_c_ends_a_call() -> None:
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=240)
    assert ran.stdout.split("\n") == ["interrupted"] * 6 + [""], ran.stderr
    assert ran.returncode == 0, ran.stderr


# Every kind of sub-interpreter that this Python makes: with a GIL of its own (from Python 3.12 on) and with that of the process.
SUB_INTERPRETERS = f"""
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def create(kind):
    if kind == "own GIL":
        return interpreters.create()
    try:
        return interpreters.create("legacy")
    except TypeError:
        return interpreters.create(isolated=False)

def attempt(kind):
    # From Python 3.13 on, what it raised comes back.
    other = create(kind)
    try:
        print(kind, interpreters.run_string(other, "import hypergrove"))
    except Exception as why:
        print(kind, why)
    interpreters.destroy(other)

KINDS = ["own GIL", "shared GIL"]
# The first import of the process is not that of the main interpreter.
list(map(attempt, KINDS))
import asyncio, hypergrove
key = hypergrove.PrivateKey.generate("{SET}")

async def sign():
    return await key.sign_async(b"m")

asyncio.run(sign())
list(map(attempt, KINDS))
# The end of the others has not ended what signs here.
assert key.public_key().is_valid(asyncio.run(sign()), b"m")
print("signed")
"""


@pytest.mark.skipif(
    not any(map(importlib.util.find_spec, ["_interpreters", "_xxsubinterpreters"])),
    reason="this Python makes no sub-interpreters",
)
def test_a_sub_interpreter_gets_an_error() -> None:
    ran = subprocess.run([sys.executable, "-c", SUB_INTERPRETERS], capture_output=True, text=True, timeout=60)
    *attempts, signed = ran.stdout.splitlines()
    assert (ran.returncode, signed) == (0, "signed"), ran
    own = "does not support loading in subinterpreters" if sys.version_info >= (3, 12) else "in a sub-interpreter"
    for attempt, (kind, why) in zip(attempts, [("own", own), ("shared", "in a sub-interpreter")] * 2, strict=True):
        assert attempt.startswith(kind) and why in attempt, ran
