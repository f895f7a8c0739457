"""Options of the work: engines that share devices, with checks, a time and a cancelling of their own."""

import asyncio
import gc
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import SET

from hypergrove import Engine, PrivateKey, keygen_batch, sha256_batch, verify_batch, zkdilithium

ROWS = [bytes([i]) for i in range(40)]
ENGINES = [Engine(devices="cpu", threads=1), Engine(devices="cpu", threads=2)]


@pytest.fixture(params=ENGINES, ids=["one thread", "two threads"])
def engine(request: pytest.FixtureRequest) -> Any:
    return request.param


def calls(key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> dict[str, Callable[[Engine], object]]:
    """A call of each function that computes, with the result that every engine gives."""
    public, signature = key.public_key(), key.sign(b"m", deterministic=True)
    signatures = key.sign_batch(ROWS, deterministic=True)

    def awaited(engine: Engine) -> object:
        async def main() -> list[object]:
            signing = [key.sign_async(row, deterministic=True, engine=engine) for row in ROWS[:3]]
            # Jobs that come alone, which the loop's thread may do.
            for _ in range(6):
                await public.verify_async(signature, b"m", engine=engine)
            return [await future for future in signing]

        return asyncio.run(main())

    return {
        "sign": lambda engine: key.sign(b"m", deterministic=True, engine=engine),
        "sign_file": lambda engine: key.sign_file(__file__, prehash="SHA2-256", deterministic=True, engine=engine),
        "sign_batch": lambda engine: key.sign_batch(ROWS, deterministic=True, engine=engine).tolist(),
        "is_valid": lambda engine: [public.is_valid(signature, data, engine=engine) for data in (b"m", b"n")],
        "verify_batch": lambda engine: verify_batch(public, signatures, ROWS[::-1], engine=engine).tolist(),
        "keygen": lambda engine: PrivateKey.generate(SET, engine=engine).set,
        "keygen_batch": lambda engine: len(keygen_batch(SET, 5, engine=engine)),
        "cache": lambda engine: key.cache(engine=engine).cached_layers,
        "sha256_batch": lambda engine: sha256_batch(ROWS, engine=engine).tolist(),
        "zkdilithium": lambda engine: zk_key.sign(b"m", engine=engine),
        "asyncio": awaited,
    }


def test_checks_change_no_result(engine: Engine, key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> None:
    both = engine.with_options(redundant=True, verify_signatures=True)
    others = [engine.with_options(), engine.with_options(redundant=True), both]
    others += [engine.with_options(verify_signatures=True), both.with_options(timeout=3600), engine.with_options(timeout=math.inf)]
    for name, call in calls(key, zk_key).items():
        expected = call(engine)
        for other in others:
            assert call(other) == expected, name
    shared = ["devices", "threads", "device_timeout"]
    assert all(getattr(other, fact) == getattr(engine, fact) for other in others for fact in shared)


def test_no_work_begins_after_its_time(engine: Engine, key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> None:
    late = engine.with_options(timeout=1e-9)
    for name, call in calls(key, zk_key).items():
        with pytest.raises(TimeoutError, match="the deadline passed"):
            call(late)
            pytest.fail(name)
        # Options that are None stay as they are.
        with pytest.raises(TimeoutError):
            call(late.with_options(redundant=True))
        call(late.with_options(timeout=math.inf))
        call(engine)


def test_work_that_takes_longer_than_its_time_ends(engine: Engine) -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        keygen_batch(SET, 1_000_000, engine=engine.with_options(timeout=0.05))
    assert time.monotonic() - began < 60


def test_cancelled_work_ends_and_other_work_goes_on(
    engine: Engine, key: PrivateKey, zk_key: zkdilithium.PrivateKey
) -> None:
    work, other = engine.with_options(redundant=True), engine.with_options(redundant=True)
    work.cancel()
    work.cancel()
    for name, call in calls(key, zk_key).items():
        with pytest.raises(RuntimeError, match="cancelled: its caller (cancelled it|wants no result)"):
            call(work)
            pytest.fail(name)
        call(other)
        call(engine)
        # An engine for other work again, which nobody has cancelled.
        call(work.with_options())


def test_a_call_is_cancelled_by_another_thread(engine: Engine, key: PrivateKey) -> None:
    work = engine.with_options()
    timer = threading.Timer(0.05, work.cancel)
    others: list[bytes] = []
    signer = threading.Thread(target=lambda: others.extend(key.sign(row, engine=engine) for row in ROWS))
    signer.start()
    timer.start()
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="its caller cancelled it"):
        keygen_batch(SET, 1_000_000, engine=work)
    assert time.monotonic() - began < 60
    timer.join()
    signer.join()
    assert list(verify_batch(key.public_key(), others, ROWS)) == [True] * len(ROWS)


def test_futures_of_cancelled_work(key: PrivateKey) -> None:
    engine = Engine(devices="cpu", threads=1)

    async def main() -> None:
        work, other = engine.with_options(), engine.with_options()
        pairs = [(key.sign_async(b"m", engine=work), key.sign_async(b"m", engine=other)) for _ in range(50)]
        work.cancel()
        ended = await asyncio.gather(*(future for future, _ in pairs), return_exceptions=True)
        is_cancelled = [isinstance(end, RuntimeError) and "cancelled" in str(end) for end in ended]
        # Jobs that had begun are completed.
        assert all(is_it or isinstance(end, bytes) for is_it, end in zip(is_cancelled, ended, strict=True))
        assert sum(is_cancelled) > 25
        assert all([isinstance(await future, bytes) for _, future in pairs])

    asyncio.run(main())


def test_an_engine_of_options_holds_what_it_needs(key: PrivateKey) -> None:
    engine = Engine(devices="cpu", threads=1)
    careful = engine.with_options(redundant=True)
    again = careful.with_options(verify_signatures=True)
    del engine
    gc.collect()
    assert key.public_key().is_valid(key.sign(b"m", engine=careful), b"m", engine=careful)
    del careful
    gc.collect()
    assert key.public_key().is_valid(key.sign(b"m", engine=again), b"m", engine=again)
    again.cancel()
    with pytest.raises(RuntimeError):
        key.sign(b"m", engine=again)


def test_options_that_are_wrong() -> None:
    engine = Engine(devices="cpu", threads=1)
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"timeout": 0}, ValueError, "timeout: 0.0;.*more than 0"),
        ({"timeout": -1.5}, ValueError, "timeout: -1.5;"),
        ({"timeout": math.nan}, ValueError, "timeout: NaN;"),
        ({"timeout": 1e300}, ValueError, "math.inf"),
        ({"timeout": "60"}, TypeError, "timeout"),
        ({"redundant": "yes"}, TypeError, "redundant"),
        ({"verify_signatures": 1}, TypeError, "verify_signatures"),
        ({"threads": 2}, TypeError, "threads"),
    ]
    for options, error, text in wrong:
        with pytest.raises(error, match=text):
            engine.with_options(**options)
    with pytest.raises(TypeError):
        engine.with_options(True)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="cancel an engine of with_options"):
        engine.cancel()
    with pytest.raises(TypeError):
        engine.with_options().cancel(1)  # type: ignore[call-arg]
