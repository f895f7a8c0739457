"""Futures of asyncio, and the loops that wait for them."""

import asyncio
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import SET

from hypergrove import Engine, InvalidSignature, PrivateKey, verify_batch, zkdilithium


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


def test_short_calls_that_come_alone() -> None:
    """The loop's thread does them, and the loop's other tasks go on between them."""
    key, engine = PrivateKey.generate("SLH-DSA-SHA2-128s"), Engine(devices="cpu", threads=1)
    public, message = key.public_key(), b"message"
    signature = key.sign(message)
    faults: list[object] = []

    def blocking() -> float:
        began = time.thread_time()
        for _ in range(20):
            assert public.is_valid(signature, message, engine=engine)
        return time.thread_time() - began

    async def one(count: int) -> None:
        for i in range(count):
            await public.verify_async(signature, message, engine=engine)
            with pytest.raises(InvalidSignature):
                await public.verify_async(signature, b"other", engine=engine)
            if i % 4 == 0:
                public.verify_async(signature, message, engine=engine).cancel()

    async def main() -> float:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        turns, is_over = 0, False

        async def other() -> None:
            nonlocal turns
            while not is_over:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        await one(20)
        is_over = True
        await task
        # Each call gives the other task a turn.
        assert turns >= 40
        # Of the processor's time that the verifications take, the loop's thread has this share. On a busy machine the engine's threads do some.
        most = 0.0
        for _ in range(50):
            verified, began = blocking(), time.thread_time()
            for _ in range(20):
                await public.verify_async(signature, message, engine=engine)
            most = max(most, (time.thread_time() - began) / verified)
        return most

    most = asyncio.run(main())
    assert not faults
    if blocking() > 20 * 300e-6:
        pytest.skip("a verification is not short on this machine")
    assert most > 0.9


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


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts deliveries, or cannot watch sockets."""

    deliveries = 0
    watches = True

    def count(self, callback: Callable[..., object]) -> Callable[..., object]:
        if type(callback).__name__ != "Delivery":
            return callback

        def deliver(*args: object) -> None:
            self.deliveries += 1
            callback(*args)

        return deliver

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        if not self.watches and type(callback).__name__ == "Delivery":
            raise NotImplementedError
        super().add_reader(fd, self.count(callback), *args)

    def call_soon(self, callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.Handle:
        return super().call_soon(self.count(callback), *args, **options)

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, **options: Any) -> asyncio.Handle:
        assert not self.watches
        return super().call_soon_threadsafe(self.count(callback), *args, **options)


@pytest.mark.parametrize("watches", [True, False])
def test_a_loop_is_woken_once_for_many_jobs(key: PrivateKey, watches: bool) -> None:
    public, signature = key.public_key(), key.sign(b"m")
    loop = CountingLoop()
    loop.watches = watches

    async def main() -> None:
        for count in [1, 300, 3]:
            before, engine = loop.deliveries, Engine(threads=2)
            futures = [public.verify_async(signature, b"m", engine=engine) for _ in range(count)]
            # They end while the loop stands.
            time.sleep(0.5)
            assert await asyncio.gather(*futures) == [None] * count
            assert loop.deliveries - before <= 2

    loop.run_until_complete(main())
    loop.close()


def test_loops_in_several_threads(key: PrivateKey) -> None:
    public, signatures = key.public_key(), [key.sign(bytes([i])) for i in range(8)]

    async def caller(number: int) -> None:
        for i in range(40):
            await public.verify_async(signatures[number], bytes([number]))
            with pytest.raises(InvalidSignature):
                await public.verify_async(signatures[number], bytes([i + 8]))

    async def main() -> None:
        await asyncio.gather(*map(caller, range(8)))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(asyncio.run, main()) for _ in range(12)]:
            done.result(120)


def test_jobs_that_end_while_their_loop_stands(key: PrivateKey) -> None:
    loop = asyncio.new_event_loop()
    futures: list[asyncio.Future[bytes]] = []

    async def begin() -> None:
        futures.extend(key.sign_async(bytes([i])) for i in range(50))

    async def end() -> list[bytes]:
        return await asyncio.gather(*futures)

    for _ in range(3):
        loop.run_until_complete(begin())
        time.sleep(0.3)
        assert all(map(key.public_key().is_valid, loop.run_until_complete(end()), map(bytes, zip(range(50)))))
        futures.clear()
    loop.close()


@pytest.mark.parametrize("is_closed", [True, False])
def test_answers_that_nobody_takes_keep_no_loop(key: PrivateKey, is_closed: bool) -> None:
    def leave() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()

        async def begin() -> None:
            for i in range(30):
                key.sign_async(bytes([i]))
            # Some answers wait for their delivery when the loop stands.
            await asyncio.sleep(0.002)

        loop.run_until_complete(begin())
        if is_closed:
            loop.close()
        return weakref.ref(loop)

    # A warning that is recorded, or raised, would keep the loop that it is about. Some loops are gone before all are made.
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        loops = [leave() for _ in range(10)]
        until = time.monotonic() + 60
        while any(loop() is not None for loop in loops) and time.monotonic() < until:
            time.sleep(0.05)
            gc.collect()
    assert [loop() for loop in loops] == [None] * 10
    # A new loop, maybe where one of them was.
    assert key.public_key().is_valid(asyncio.run(sign(key)), b"m")


async def sign(key: PrivateKey, engine: Engine | None = None) -> bytes:
    return await key.sign_async(b"m", engine=engine)


def test_a_cancelled_task_cancels_its_job(key: PrivateKey) -> None:
    async def seconds(engine: Engine, cancels: bool) -> float:
        tasks = [asyncio.ensure_future(key.sign_async(b"m", engine=engine)) for _ in range(500)]
        last = asyncio.ensure_future(key.sign_async(b"m", engine=engine))
        await asyncio.sleep(0)
        began = time.monotonic()
        if cancels:
            for task in tasks:
                task.cancel()
        await last
        taken = time.monotonic() - began
        await asyncio.gather(*tasks, return_exceptions=True)
        assert not cancels or sum(task.cancelled() for task in tasks) > 300
        return taken

    async def main() -> None:
        engine = Engine(threads=1)
        # The last one does not wait for hundreds of signatures that nobody wants. The fastest of three: others use this machine too.
        with_all = min([await seconds(engine, False) for _ in range(3)])
        with_none = min([await seconds(engine, True) for _ in range(3)])
        assert with_none < with_all / 2

    asyncio.run(main())


class Unwatching(asyncio.SelectorEventLoop):
    """Watches no sockets of the engine, as other loops may watch none at all."""

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        if type(callback).__name__ == "Delivery":
            raise NotImplementedError
        super().add_reader(fd, callback, *args)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("make", [asyncio.SelectorEventLoop, Unwatching])
@pytest.mark.parametrize("end", ["close", "close_before_cancelled_futures_are_told", "drop"])
def test_jobs_that_nobody_can_await_are_cancelled(make: Callable[[], asyncio.AbstractEventLoop], end: str) -> None:
    if (make, end) == (Unwatching, "drop"):
        pytest.skip("such a loop keeps no jobs: the engine does")
    key, engine = PrivateKey.generate("SLH-DSA-SHA2-128s"), Engine(devices="cpu", threads=1)
    key.sign(b"m", engine=engine)
    began = time.process_time()
    for _ in range(4):
        key.sign(b"m", engine=engine)
    of_one = (time.process_time() - began) / 4
    loop = make()
    futures: list[asyncio.Future[bytes]] = []

    async def begin() -> None:
        futures.extend(key.sign_async(b"m", engine=engine) for _ in range(100))

    loop.run_until_complete(begin())
    began = time.process_time()
    if end == "drop":
        futures.clear()
        del begin, loop
        gc.collect()
    else:
        if end != "close":
            for future in futures:
                future.cancel()
        loop.close()
    # It comes after all jobs that are queued.
    assert key.public_key().is_valid(asyncio.run(sign(key, engine)), b"m")
    assert (time.process_time() - began) / of_one < 50


class FailingLoop(asyncio.SelectorEventLoop):
    """Fails now and then, as a signal's handler may that raises KeyboardInterrupt in it."""

    calls = 0

    def call_soon(self, *args: Any, **options: Any) -> asyncio.Handle:
        if type(args[0]).__name__ == "Delivery":
            self.calls += 1
            if self.calls % 2:
                raise RuntimeError("as planned")
        return super().call_soon(*args, **options)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        if type(callback).__name__ == "Delivery":
            raise NotImplementedError
        super().add_reader(fd, callback, *args)


def test_a_loop_that_fails_loses_no_answer(key: PrivateKey) -> None:
    public, signature = key.public_key(), key.sign(b"m")
    loop, failures = FailingLoop(), []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))

    async def main() -> None:
        for _ in range(5):
            every = asyncio.gather(*(public.verify_async(signature, b"m") for _ in range(1000)))
            assert await asyncio.wait_for(every, 60) == [None] * 1000

    loop.run_until_complete(main())
    loop.close()
    assert loop.calls and len(failures) == (loop.calls + 1) // 2


class Minimal:
    """Has no more of a loop than futures need."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.woken = threading.Event()

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def call_soon(self, callback: Callable[..., object], *args: Any, context: object = None) -> None:
        self.calls.append((callback, *args))

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: object = None) -> None:
        self.calls.append((callback, *args))
        self.woken.set()


def test_a_loop_of_another_kind(key: PrivateKey) -> None:
    loop = Minimal()
    asyncio._set_running_loop(loop)  # type: ignore[arg-type]
    try:
        futures = [key.sign_async(b"m") for _ in range(20)]
    finally:
        asyncio._set_running_loop(None)
    until = time.monotonic() + 60
    while not all(future.done() for future in futures) and time.monotonic() < until:
        loop.woken.wait(1)
        calls, loop.calls = loop.calls, []
        for callback, *args in calls:
            callback(*args)
    assert all(key.public_key().is_valid(future.result(), b"m") for future in futures)


def signed_in_child(raw: bytes) -> bytes:
    return asyncio.run(sign(PrivateKey.from_raw(SET, raw)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_children_have_loops_of_their_own(key: PrivateKey) -> None:
    """Children are forked while jobs of this process's loop end."""

    async def main() -> None:
        async def work() -> None:
            while not ended.is_set():
                await asyncio.gather(*(key.sign_async(b"m") for _ in range(50)))

        ended, task = asyncio.Event(), asyncio.ensure_future(work())
        ended_work = 0
        for _ in range(5):
            await asyncio.sleep(0.01)
            pool = multiprocessing.get_context("fork").Pool(2)
            signatures = await asyncio.to_thread(pool.map, signed_in_child, [key.to_raw()] * 4)
            assert all(key.public_key().is_valid(signature, b"m") for signature in signatures)
            pool.terminate()
            ended_work += 1
        ended.set()
        await task

    asyncio.run(main())


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
