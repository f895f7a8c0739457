"""Threads, forks and Ctrl-C."""

import asyncio
import ctypes
import importlib.util
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import SET

from hypergrove import Engine, PrivateKey, sha256_batch, verify_batch


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
        # A Python without a GIL spins in `wait`, which takes long on a busy machine.
        while not ended.is_set():
            time.sleep(0.002)
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


IN_LOOP = """
async def work():
    while True:
        await asyncio.gather(*(public.verify_async(signature, b"m") for _ in range(20)))
def run():
    asyncio.run(work())
"""
ONE_BY_ONE = """
def run():
    while True:
        public.verify(signature, b"m")
"""


@pytest.mark.parametrize("run", [IN_LOOP, ONE_BY_ONE])
def test_daemon_threads_say_nothing_when_python_ends(run: str) -> None:
    if run is IN_LOOP and not getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("without a GIL, daemon threads run while Python ends, and print that their jobs were cancelled")
    code = f"""
import asyncio, threading, time
from hypergrove import PrivateKey
key = PrivateKey.generate("{SET}")
public, signature = key.public_key(), key.sign(b"m")
{run}
for _ in range(12):
    threading.Thread(target=run, daemon=True).start()
time.sleep(0.3)
"""
    for _ in range(5):
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "")


STOPPED = f"""
import asyncio, os, threading, time
from hypergrove import Engine, PrivateKey
key, engine, slow = PrivateKey.generate("{SET}"), Engine(devices="cpu", threads=1), threading.Event()
class Loop(asyncio.SelectorEventLoop):
    def create_future(self):
        if slow.is_set():
            # Python's exit stops the engine, which cancels the job.
            time.sleep(1)
        return super().create_future()
async def work():
    others = [key.sign_async(bytes(1 << 20), engine=engine) for _ in range(200)]
    slow.set()
    try:
        await key.sign_async(b"m", engine=engine)
    except Exception:
        os.write(2, b"the job was cancelled")
def run():
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(work())
threading.Thread(target=run, daemon=True).start()
slow.wait()
time.sleep(0.1)
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="threads that come back to a Python that ends wait for ever")
def test_a_call_says_nothing_whose_engine_python_stops() -> None:
    ran = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


BEGINNING = f"""
import atexit, logging, os, threading, time
began = threading.Event()
def at_exit():
    began.set()
    last()
# Handlers run from the last to the first. The package's own is registered by its import, so it runs before this one.
atexit.register(at_exit)
from hypergrove import PrivateKey
key = PrivateKey.generate("{SET}")
"""
A_LOCK_OF_A_THREAD = """
lock = threading.Lock()
def work():
    while True:
        with lock:
            key.sign(b"m")
def last():
    for _ in range(3):
        with lock:
            pass
threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
A_LOGGER_THAT_SIGNS = """
class Signed(logging.Handler):
    def emit(self, record):
        key.sign(record.getMessage().encode())
log = logging.getLogger("signed")
log.addHandler(Signed())
log.setLevel("INFO")
def work():
    while True:
        log.info("message")
def last():
    logging.shutdown()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.2)
"""
A_NEW_THREAD = """
def last():
    thread = threading.Thread(target=lambda: key.sign(b"m"))
    thread.start()
    thread.join()
"""
A_FORK = """
def work():
    began.wait()
    child = os.fork()
    if child == 0:
        key.sign(b"m")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
worker = threading.Thread(target=work, daemon=True)
worker.start()
def last():
    worker.join()
"""


@pytest.mark.parametrize("rest", [A_LOCK_OF_A_THREAD, A_LOGGER_THAT_SIGNS, A_NEW_THREAD, A_FORK])
def test_exit_handlers_can_wait_for_threads_that_sign(rest: str) -> None:
    if rest is A_FORK and not hasattr(os, "fork"):
        pytest.skip("no fork")
    # Since 3.12 Python warns of a fork beside threads.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", BEGINNING + rest]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_exit_handlers_can_sign() -> None:
    code = f"""
import asyncio, atexit
def sign():
    assert key.public_key().is_valid(key.sign(b"m"), b"m")
async def sign_async():
    assert key.public_key().is_valid(await key.sign_async(b"m"), b"m")
# Handlers run from the last to the first. The package's own is registered by its import.
atexit.register(sign)
from hypergrove import PrivateKey
atexit.register(lambda: asyncio.run(sign_async()))
key = PrivateKey.generate("{SET}")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


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


def isolate() -> bool:
    """Children are in a new PID namespace from now on, where the first one has the number 1; False if this user may make none."""
    new_pid, new_user = 0x2000_0000, 0x1000_0000
    unshare = ctypes.CDLL(None).unshare
    return unshare(new_pid) == 0 or unshare(new_user | new_pid) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="this system has no PID namespaces")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_with_its_parents_number(key: PrivateKey) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if isolate() else 1)
    if os.waitpid(child, 0)[1]:
        pytest.skip("this user may make no PID namespace")

    def work() -> None:
        assert os.getpid() == 1
        assert key.public_key().is_valid(key.sign(b"m"), b"m")
        assert key.public_key().is_valid(asyncio.run(sign(key)), b"m")
        assert key.public_key().is_valid(key.sign_batch([b"a", b"b"])[1], b"b")
        PrivateKey.generate(SET)

    def first() -> None:
        work()
        assert isolate()
        in_child(work)

    def begin() -> None:
        assert isolate()
        in_child(first)

    in_child(begin)


async def sign(key: PrivateKey) -> bytes:
    return await key.sign_async(b"m")


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
