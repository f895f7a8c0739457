"""Futures of asyncio, and the loops that wait for them."""

import asyncio
import gc
import subprocess
import sys
import time
import weakref

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
