"""Batches: columns of any form give what single calls give, and results lie where they should."""

import hashlib
import math
import subprocess
import sys
from collections import UserList, deque
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from conftest import SET
from hypothesis import given
from hypothesis import strategies as st

import hypergrove
from hypergrove import Array, Engine, PrivateKey, PublicKey, devices, keygen_batch, sha256_batch, verify_batch, zkdilithium


class Derived(bytes):
    """Is `bytes` all the same."""


class DerivedList(list[bytes]):
    """Is a list all the same."""


class Ends(list[Any]):
    """Has nothing, whatever its length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Endless(list[Any]):
    """Has no end, whatever its length."""

    def __iter__(self) -> Iterator[Any]:
        return repeat(self[0])


def in_array(engine: Engine, rows: list[bytes]) -> Array:
    """Rows in memory of an engine."""
    array = engine.empty((len(rows), len(rows[0])))
    with memoryview(array) as view:
        view.cast("B")[:] = b"".join(rows)
    return array


def forms(rows: list[bytes]) -> dict[str, Any]:
    """The same rows, of one length, in every form."""
    packed = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1)
    pinned = in_array(Engine(), rows)
    seen = in_array(Engine(), rows)
    return {
        "a list": rows,
        "a tuple": tuple(rows),
        "a list of a class derived from bytes": list(map(Derived, rows)),
        "an object of a class derived from list": DerivedList(rows),
        "a list of two kinds": [bytearray(row) if i % 3 else row for i, row in enumerate(rows)],
        "a tuple of other buffers": tuple(map(bytearray, rows)),
        "a deque of views": deque(map(memoryview, rows)),
        "a list of arrays": list(packed),
        "an array of objects": np.array([*rows, None], dtype=object)[:-1],
        "a read-only array": packed,
        "an array that may be written": packed.copy(),
        "a view": memoryview(packed),
        "an array of ours": pinned,
        "an array of ours with a view": (seen, memoryview(seen))[0],
        "a view of an array of ours": np.asarray(in_array(Engine(), rows)),
    }


def test_forms_of_columns(key: PrivateKey, other: PrivateKey) -> None:
    messages = [bytes([i] * 5) for i in range(20)]
    signers = [key, other]
    publics = [signers[i % 2].public_key() for i in range(20)]
    expected = [signers[i % 2].sign(message, deterministic=True) for i, message in enumerate(messages)]
    for what, column in forms(messages).items():
        signed = key.sign_batch(column, deterministic=True)
        assert signed.shape == (20, key.signature_size) and signed.format == "B"
        assert list(signed)[::2] == expected[::2], what
    expected[3] = bytes([expected[3][0] ^ 1]) + expected[3][1:]
    verdicts = [i != 3 for i in range(20)]
    raw_keys = [public.to_raw() for public in publics]
    for what in forms(messages):
        columns = [forms(rows)[what] for rows in (raw_keys, expected, messages)]
        valid = verify_batch(*columns, set=SET)
        assert (valid.shape, valid.format) == ((20,), "?")
        assert list(valid) == verdicts, what
        assert list(verify_batch(publics, columns[1], columns[2])) == verdicts, what
        sums = sha256_batch(columns[2])
        assert list(sums) == [hashlib.sha256(message).digest() for message in messages], what
    first = publics[0]
    assert list(verify_batch(first, expected[::2], messages[::2])) == [True] * 10
    assert list(verify_batch([first] * 20, expected, messages)) == [i % 2 == 0 for i in range(20)]


def test_a_list_may_change_during_the_call(key: PrivateKey) -> None:
    messages = [i.to_bytes(4, "little") for i in range(16)]
    signatures = list(map(bytes, key.sign_batch(messages, deterministic=True)))
    signatures[3] = bytes(len(signatures[3]))

    class Changes(list[bytes]):
        """Is looked at when the signatures have been."""

        def __iter__(self) -> Iterator[bytes]:
            signatures.clear()
            # Objects in the memory that others had.
            signatures.extend(bytes([i]) * key.signature_size for i in range(64))
            return super().__iter__()

    assert list(verify_batch(key.public_key(), signatures, Changes(messages))) == [i != 3 for i in range(16)]
    assert len(signatures) == 64


@given(st.lists(st.binary(max_size=300), max_size=40), st.one_of(st.none(), st.binary(max_size=255)))
def test_what_is_signed_is_valid(messages: list[bytes], context: bytes | None) -> None:
    key = shake_key()
    signatures = key.sign_batch(messages, context=context)
    assert list(verify_batch(key.public_key(), signatures, messages, context=context)) == [True] * len(messages)
    assert [s.hex() for s in sha256_batch(messages)] == [hashlib.sha256(m).hexdigest() for m in messages]
    for signature, message in zip(signatures, messages, strict=True):
        assert key.public_key().is_valid(signature, message, context)


_KEY: list[PrivateKey] = []


def shake_key() -> PrivateKey:
    if not _KEY:
        _KEY.append(PrivateKey.generate("SLH-DSA-SHAKE-128f"))
    return _KEY[0]


@given(st.integers(0, 30), st.integers(0, 40), st.data())
def test_packed_rows_of_any_width(rows: int, width: int, data: st.DataObject) -> None:
    packed = np.frombuffer(data.draw(st.binary(min_size=rows * width, max_size=rows * width)), dtype=np.uint8)
    packed = packed.reshape(rows, width)
    expected = [hashlib.sha256(row.tobytes()).digest() for row in packed]
    assert list(sha256_batch(packed)) == expected
    array = Engine(threads=1).empty((rows, width))
    np.asarray(array)[:] = packed
    assert list(sha256_batch(array)) == expected


def test_nothing_gives_nothing(key: PrivateKey) -> None:
    public = key.public_key()
    assert key.sign_batch([]).shape == (0, key.signature_size)
    for keys in [public, []]:
        assert verify_batch(keys, [], [], set=SET).shape == (0,)
    assert sha256_batch(np.empty((0, 7), dtype=np.uint8)).shape == (0, 32)
    keys_made, publics = keygen_batch(SET, 0)
    assert len(keys_made) == 0 and publics.shape == (0, 32)


def test_results_are_arrays(key: PrivateKey) -> None:
    signatures = key.sign_batch([b"a", b"b", b"c"])
    seen = np.asarray(signatures)
    assert seen.shape == (3, key.signature_size) and seen.dtype == np.uint8 and seen.flags.c_contiguous
    # No copy.
    seen[0, 0] ^= 1
    assert signatures[0][0] == seen[0, 0]
    assert np.shares_memory(seen, np.asarray(signatures))
    assert list(np.asarray(verify_batch(key.public_key(), signatures, [b"a", b"b", b"c"]))) == [False, True, True]
    assert signatures.tobytes() == seen.tobytes() == bytes(memoryview(signatures).cast("B"))
    assert signatures[-1] == bytes(seen[2]) and len(signatures) == 3
    for wrong in [3, -4]:
        with pytest.raises(IndexError, match="of an array with 3|of 3"):
            signatures[wrong]
    # It outlives what it came from.
    del signatures
    assert seen[1].any()
    assert repr(key.sign_batch([b"a"])) == f"<hypergrove.Array of uint8, shape (1, {key.signature_size})>"


def test_an_array_is_no_verdict(key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> None:
    """The length of an array says nothing of its verdicts: only `all` and `any` do, and NumPy's rule of one element."""
    signature, zk_signature = key.sign(b"m"), zk_key.sign(b"m")

    def slh_dsa(*messages: bytes) -> hypergrove.Array:
        return verify_batch(key.public_key(), [signature] * len(messages), list(messages))

    def zk(*messages: bytes) -> hypergrove.Array:
        return zkdilithium.verify_batch(zk_key.public_key(), [zk_signature] * len(messages), list(messages))

    for verify in (slh_dsa, zk):
        assert verify(b"m") and not verify(b"x") and bool(verify(b"m")) is True and bool(verify(b"x")) is False
        for messages in ([], [b"m", b"m"], [b"x", b"x"]):
            with pytest.raises(ValueError, match=f"array of {len(messages)} elements is neither true nor false; use array.all"):
                bool(verify(*messages))
            with pytest.raises(ValueError, match="neither true nor false"):
                assert not verify(*messages)
        assert all(verify(b"m", b"m")) and not any(verify(b"x", b"x")) and not all(verify(b"m", b"x"))
        assert False in verify(b"m", b"x") and True not in verify(b"x", b"x")
    null = verify_batch(key.public_key(), [None], [b"m"], nulls="propagate")
    assert list(null) == [None] and not null
    signatures = key.sign_batch([b"m"])
    with pytest.raises(ValueError, match="array of 17088 elements"):
        bool(signatures)
    byte = Engine().empty((1, 1))
    assert not byte
    memoryview(byte)[0, 0] = 7
    assert byte


def test_arrays_compare_by_the_row(key: PrivateKey) -> None:
    valid = verify_batch(key.public_key(), [key.sign(b"m")] * 3, [b"m", b"x", b"m"])
    for other in ([True, False, True], (True, False, True), valid):
        assert list(valid == other) == [True] * 3 and list(valid != other) == [False] * 3
    same = valid == [True, True, True]
    assert isinstance(same, hypergrove.Array) and list(same) == [True, False, True]
    assert list([True, True, True] == valid) == [True, False, True]
    assert list(valid == True) == [True, False, True] and list(valid != False) == [True, False, True]  # noqa: E712
    for wrong in ([True], [], [True] * 4, (True, False)):
        with pytest.raises(ValueError, match=f"3 rows does not compare with {len(wrong)} rows"):
            assert valid == wrong
        with pytest.raises(ValueError, match="does not compare"):
            assert valid != wrong
    with pytest.raises(ValueError, match="neither true nor false"):
        assert valid == [True, False, True]
    one = verify_batch(key.public_key(), [key.sign(b"m")], [b"x"])
    assert one == [False] and one != [True] and not one == [True]
    for other in ({True, False}, "yes", iter([True]), {0: True}, object(), 1.0):
        with pytest.raises(TypeError, match=f"does not compare with {type(other).__name__}; make a list"):
            assert valid == other
        with pytest.raises(TypeError, match="does not compare"):
            assert valid != other
    with pytest.raises(TypeError):
        assert valid < valid  # type: ignore[operator]
    assert (valid == np.array([True, True, True])).tolist() == (np.array([True, True, True]) == valid).tolist() == [True, False, True]
    null = verify_batch(key.public_key(), [None, key.sign(b"m")], [b"m"] * 2, nulls="propagate")
    assert list(null == [True, True]) == [False, True] and list(null == [None, True]) == [True, True]
    messages = [b"a", b"b"]
    sums = sha256_batch(messages)
    assert list(sums == [hashlib.sha256(b"a").digest(), b"another"]) == [True, False] and all(sums == sha256_batch(messages))
    assert list(sums == sums[1]) == [False, True]
    with pytest.raises(TypeError, match="unhashable"):
        hash(valid)


@pytest.mark.parametrize("with_view", [False, True])
def test_out_is_used_again(key: PrivateKey, with_view: bool) -> None:
    public, size = key.public_key(), key.signature_size
    ours = Engine().empty((2, size))
    theirs = np.full((2, size), 7, dtype=np.uint8)
    view = np.asarray(ours) if with_view else None
    for texts in [[b"a", b"b"], [b"c", b"d"]]:
        for out in [ours, theirs]:
            assert key.sign_batch(texts, out=out) is out
            assert list(verify_batch(public, out, texts)) == [True, True]
    if view is not None:
        assert list(verify_batch(public, view, [b"c", b"d"])) == [True, True]
    sums = np.zeros((2, 32), dtype=np.uint8)
    sha256_batch([b"a", b"b"], out=sums)
    assert sums[1].tobytes() == hashlib.sha256(b"b").digest()


def test_an_array_is_not_read_and_written_by_one_call() -> None:
    array = Engine().empty((4, 32))
    with pytest.raises(BufferError, match="in use"):
        sha256_batch(array, out=array)
    # The call that failed has let go of it.
    assert list(sha256_batch(array)) == [hashlib.sha256(bytes(32)).digest()] * 4
    sha256_batch([b""] * 4, out=array)


def test_key_pairs(key: PrivateKey) -> None:
    keys, publics = keygen_batch(SET, 3)
    assert (len(keys), keys.set, publics.shape) == (3, SET, (3, 32))
    assert keys[0] != keys[1] and keys[-1] == keys[2]
    for i, raw in enumerate(publics):
        assert keys[i].public_key() == PublicKey.from_raw(SET, raw)
        assert keys[i].public_key().is_valid(keys[i].sign(b"m"), b"m")
    signatures = [keys[i].sign(b"m") for i in range(3)]
    assert list(verify_batch(publics, signatures, [b"m"] * 3, set=SET)) == [True] * 3
    for wrong in [3, -4]:
        with pytest.raises(IndexError):
            keys[wrong]


def test_zkdilithium() -> None:
    keys, publics = zkdilithium.keygen_batch(3)
    texts = [b"a", b"b", b"c"]
    signatures = [keys[i].sign(text) for i, text in enumerate(texts)]
    objects = [keys[i].public_key() for i in range(3)]
    for column in [publics, objects, [key.to_raw() for key in objects], np.asarray(publics)]:
        assert list(zkdilithium.verify_batch(column, signatures, texts)) == [True] * 3
        assert list(zkdilithium.verify_batch(column, signatures, [b"a", b"a", b"c"])) == [True, False, True]
    signed = keys[0].sign_batch(texts)
    assert signed[0] == signatures[0]
    assert list(zkdilithium.verify_batch(objects[0], signed, texts)) == [True] * 3
    out = Engine().empty(signed.shape)
    assert keys[0].sign_batch(texts, out=out) is out and out.tobytes() == signed.tobytes()
    assert list(zkdilithium.verify_batch(objects[0], [signatures[0][:-1]], [b"a"])) == [False]


def test_signatures_of_other_lengths_are_not_valid(key: PrivateKey) -> None:
    good = key.sign(b"m")
    rows = [good, good[:-1], b"", good + b"\0", good]
    assert list(verify_batch(key.public_key(), rows, [b"m"] * 5)) == [True, False, False, False, True]


U8 = np.uint8


@pytest.mark.parametrize(
    ("messages", "error", "text"),
    [
        (None, TypeError, "messages: NoneType is no column"),
        (b"one", TypeError, "messages: bytes is one value"),
        (bytearray(b"one"), TypeError, "messages: bytearray is one value"),
        ("one", TypeError, "messages: str is one value"),
        (memoryview(b"one"), ValueError, "messages: an array with 1 dimensions"),
        ([b"a", None], ValueError, "messages: row 1 is null; drop the nulls, fill them, or pass nulls=\"propagate\""),
        ([bytearray(b"a"), None], ValueError, "messages: row 1 is null; "),
        (np.array([b"a", None], dtype=object), ValueError, "messages: row 1 is null; "),
        (np.array([b"a", 7], dtype=object), TypeError, "messages: row 1: int is not bytes"),
        ([b"a", "b"], TypeError, "messages: row 1: str"),
        ([b"a", 7], TypeError, "messages: row 1: int"),
        ([b"a", np.zeros(3, dtype=np.float64)], TypeError, "messages: row 1: a buffer whose elements .*\"d\""),
        ([b"a", np.zeros((2, 3), dtype=U8)], ValueError, "messages: row 1: a buffer with 2 dimensions"),
        ([b"a", np.zeros(6, dtype=U8)[::2]], ValueError, "messages: row 1: the array is not contiguous"),
        ((message for message in [b"a"]), TypeError, "messages: generator is no column"),
        ({b"a": 1}, TypeError, "messages: dict is no column"),
        (np.zeros((2, 3), dtype=np.int8), TypeError, "\"b\".*uint8"),
        (np.zeros((2, 3), dtype=np.uint32), TypeError, "uint8"),
        (np.zeros((2, 3), dtype=bool), TypeError, "\"\\?\".*uint8"),
        (np.array([[b"a"]], dtype=object), TypeError, "messages: "),
        (np.zeros(3, dtype=U8), ValueError, "1 dimensions"),
        (np.zeros((2, 2, 2), dtype=U8), ValueError, "3 dimensions"),
        (np.zeros((4, 6), dtype=U8)[:, ::2], ValueError, "ascontiguousarray"),
        (np.zeros((4, 6), dtype=U8)[::2], ValueError, "not contiguous"),
        (np.zeros((4, 6), dtype=U8).T, ValueError, "not contiguous"),
        (Engine().empty(7), ValueError, "messages: .*no rows of bytes"),
    ],
)
def test_bad_columns(key: PrivateKey, messages: Any, error: type[Exception], text: str) -> None:
    for call in [key.sign_batch, sha256_batch]:
        with pytest.raises(error, match=text):
            call(messages)


@pytest.mark.parametrize(
    ("out", "error", "text"),
    [
        (np.zeros((2, 17087), dtype=U8), ValueError, "out has the shape"),
        (np.zeros((3, 17088), dtype=U8), ValueError, "out has the shape"),
        (np.zeros(2 * 17088, dtype=U8), ValueError, "out has the shape"),
        (np.zeros((2, 17088), dtype=np.int16), TypeError, "out: .*uint8"),
        (np.zeros((17088, 2), dtype=U8).T, ValueError, "out: .*not contiguous"),
        (np.frombuffer(bytes(2 * 17088), dtype=U8).reshape(2, -1), ValueError, "out is read-only"),
        (bytes(2 * 17088), ValueError, "out has the shape"),
        ([b"", b""], TypeError, "out: list"),
        (Engine().empty((2, 7)), ValueError, "out has the shape"),
    ],
)
def test_bad_out(key: PrivateKey, out: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        key.sign_batch([b"a", b"b"], out=out)


def test_out_of_booleans(key: PrivateKey) -> None:
    verdicts = verify_batch(key.public_key(), [b""], [b""])
    with pytest.raises(TypeError, match="booleans"):
        sha256_batch([b""], out=verdicts)
    with pytest.raises(ValueError, match="no rows of bytes"):
        sha256_batch(verdicts)


def test_bad_verifications(key: PrivateKey) -> None:
    public, good = key.public_key(), key.sign(b"m")
    shake = PrivateKey.generate("SLH-DSA-SHAKE-128f").public_key()
    wide = np.zeros((1, 17089), dtype=U8)
    bad: list[tuple[tuple[Any, Any, Any], dict[str, Any], type[Exception], str]] = [
        ((public, [good], []), {}, ValueError, "signatures has 1 rows, messages has 0"),
        ((public, wide, [b"m"]), {}, ValueError, "signatures: rows of 17089 bytes; a signature of .* has 17088"),
        (([public], [good] * 2, [b"m"] * 2), {}, ValueError, "public_keys has 1 rows, messages has 2"),
        (([public, shake], [good] * 2, [b"m"] * 2), {}, ValueError, "public_keys: row 1 is of the set .*SHAKE"),
        (([public, None], [good] * 2, [b"m"] * 2), {}, TypeError, "public_keys: row 1 is NoneType"),
        (([public, public.to_raw()], [good] * 2, [b"m"] * 2), {}, TypeError, "public_keys: row 1 is bytes"),
        (([public.to_raw()], [good], [b"m"]), {}, TypeError, "set="),
        (([public.to_raw()], [good], [b"m"]), {"set": "SLH-DSA"}, ValueError, "SLH-DSA"),
        (([b"short"], [good], [b"m"]), {"set": SET}, ValueError, "row 0: its public key has another length"),
        ((np.zeros((1, 31), dtype=U8), [good], [b"m"]), {"set": SET}, ValueError, "public_keys: rows of 31 bytes"),
        ((public, [good], [b"m"]), {"set": "SLH-DSA-SHAKE-128f"}, ValueError, "the public key is of the set"),
        (([public], [good], [b"m"]), {"set": "SLH-DSA-SHAKE-128f"}, ValueError, "row 0 is of the set"),
        ((public, [None], [b"m"]), {}, ValueError, "signatures: row 0 is null"),
        ((public, [good], [b"m"]), {"nulls": "keep"}, ValueError, "nulls: 'keep'; give \"error\" or \"propagate\""),
        ((public, [good], [b"m"]), {"malformed": "propagate"}, ValueError, r'malformed: .…. \(9 characters, not shown\); give "error" or "null"'),
        ((Ends([public]), [], []), {}, ValueError, "public_keys: the sequence has other rows than the 1 of its length"),
        ((Endless([public]), [good], [b"m"]), {}, ValueError, "public_keys: the sequence has other rows"),
        (([], [good], [b"m"]), {}, ValueError, "public_keys has 0 rows, messages has 1"),
        ((None, [good], [b"m"]), {}, TypeError, "public_keys"),
        ((public, [good], [b"m"]), {"context": bytes(256)}, ValueError, "256"),
        ((public, [good], [b"m"]), {"context": "c"}, TypeError, "context: str"),
        ((public, [good], [b"m"]), {"prehash": "md5"}, ValueError, "md5"),
        ((public, [good], [b"m"]), {"engine": 7}, TypeError, "engine"),
        ((key, [good], [b"m"]), {"set": SET}, TypeError, "public_keys: PrivateKey"),
    ]
    for arguments, options, error, text in bad:
        with pytest.raises(error, match=text):
            verify_batch(*arguments, **options)
    zk = zkdilithium.PrivateKey.generate().public_key()
    for keys in (Ends([zk]), Endless([zk])):
        with pytest.raises(ValueError, match="public_keys: the sequence has other rows"):
            zkdilithium.verify_batch(keys, [], [])


def test_sequences_of_keys(key: PrivateKey) -> None:
    public, good = key.public_key(), key.sign(b"m")
    for keys in [deque([public]), UserList([public]), (public,), [public]]:
        assert list(verify_batch(keys, [good], [b"m"])) == [True]
    assert list(verify_batch([], [], [])) == [] and list(zkdilithium.verify_batch([], [], [])) == []


def test_bad_counts() -> None:
    for count, error in [(-1, OverflowError), (None, TypeError), ("1", TypeError), (2**62, MemoryError)]:
        with pytest.raises(error):
            keygen_batch(SET, count)
    with pytest.raises(ValueError, match="SLH-DSA-SHA2-128"):
        keygen_batch("SLH-DSA-SHA2-128", 1)


def test_engines() -> None:
    engine = Engine(devices="cpu", threads=1, memory=64 << 20, cache=False)
    assert (engine.devices, engine.threads, engine.faults(), engine.notices()) == (["cpu:0"], 1, [], [])
    key = PrivateKey.generate(SET, engine=engine)
    signatures = key.sign_batch([b"a", b"b"], engine=engine)
    assert list(verify_batch(key.public_key(), signatures, [b"a", b"b"], engine=engine)) == [True, True]
    assert key.public_key().is_valid(key.sign(b"m", engine=engine), b"m", engine=engine)
    assert "cpu:0" in repr(engine)
    assert engine.device_timeout == 60
    for seconds in [0.5, 90, math.inf]:
        assert Engine(device_timeout=seconds).device_timeout == seconds
    double = Engine(redundant=True)
    assert list(verify_batch(key.public_key(), signatures, [b"a", b"b"], engine=double)) == [True, True]
    for options, error, text in [
        ({"devices": "tpu"}, ValueError, "there is no backend 'tpu'|\"tpu\""),
        ({"devices": ["cpu:7"]}, ValueError, "cpu:7.*the devices are cpu:0$"),
        ({"devices": "cpu:x"}, ValueError, "neither a number nor a UUID"),
        ({"devices": "cpu:GPU-5c01d2e7"}, ValueError, "none of the backend's devices has a UUID"),
        ({"devices": []}, ValueError, "without a device"),
        ({"devices": ["cpu", "cpu"]}, ValueError, "twice"),
        ({"devices": 7}, TypeError, "devices"),
        ({"threads": 0}, ValueError, "0 threads"),
        ({"threads": -1}, OverflowError, "unsigned"),
        ({"tables": ["/no/such/table.toml"]}, FileNotFoundError, r"tables: /… \(18 characters, not shown\): No such file"),
        ({"cache": True}, TypeError, "cache: give a directory"),
        ({"device_timeout": 0}, ValueError, "device_timeout: 0.0;.*more than 0"),
        ({"device_timeout": -1.5}, ValueError, "device_timeout: -1.5;"),
        ({"device_timeout": math.nan}, ValueError, "device_timeout: NaN;"),
        ({"device_timeout": 1e300}, ValueError, "math.inf"),
        ({"device_timeout": "60"}, TypeError, "device_timeout"),
        ({"speed": 9}, TypeError, "speed"),
    ]:
        with pytest.raises(error, match=text):
            Engine(**options)


def test_devices_by_uuid() -> None:
    every = devices()
    assert [uuid for name, _, uuid in every if name == "cpu:0"] == [None]
    for name, model, uuid in every:
        assert model
        if uuid is not None:
            backend = name.split(":")[0]
            for which in [uuid, uuid.lower().removeprefix("gpu-"), uuid.replace("-", "")[3:]]:
                assert Engine(devices=f"{backend}:{which}").devices == [name]
            other = "0" if uuid[-1] != "0" else "1"
            with pytest.raises(ValueError, match=f"the UUIDs are .*{uuid} .{name}"):
                Engine(devices=f"{backend}:{uuid[:-1]}{other}")


def test_memory_of_an_engine() -> None:
    engine = Engine()
    array = engine.empty((3, 5))
    assert array.shape == (3, 5) and array.tobytes() == bytes(15)
    assert engine.empty(7).shape == (7,)
    assert engine.empty((0, 5)).tobytes() == b""
    with memoryview(array) as view:
        assert view.shape == (3, 5) and not view.readonly and view.strides == (5, 1)
    del engine
    np.asarray(array)[1] = 9
    assert array[1] == bytes([9] * 5)
    for shape, error in [
        ((1, 2, 3), ValueError),
        ((), ValueError),
        (-1, ValueError),
        ((-1, 2), ValueError),
        (2**64, ValueError),
        ("ab", ValueError),
        (2**62, MemoryError),
    ]:
        with pytest.raises(error, match="shape|memory"):
            Engine().empty(shape)


def test_memory_is_asked_for_within_reason(key: PrivateKey) -> None:
    small = Engine(devices="cpu", memory=1)
    with pytest.raises(MemoryError):
        hypergrove.PrivateKey.generate(SET, engine=small)


def test_large_columns_are_copied_part_by_part() -> None:
    """With one thread, parts have 4 MiB, with three 12 MiB: the columns have many of them."""
    rows = np.random.default_rng(1).integers(0, 256, (777, 70_009), dtype=np.uint8)
    expected = [hashlib.sha256(row.tobytes()).digest() for row in rows]
    for threads in [1, 3]:
        engine = Engine(threads=threads)
        seen = engine.empty(rows.shape)
        view = np.asarray(seen)
        view[:] = rows
        some_bytes = [row.tobytes() if at % 3 else bytearray(row) for at, row in enumerate(rows)]
        for column in [rows, seen, view, list(map(bytearray, rows)), some_bytes]:
            assert list(sha256_batch(column, engine=engine)) == expected
        out = np.ones((777, 32), dtype=np.uint8)
        for into in [out, engine.empty((777, 32)), np.asarray(engine.empty((777, 32)))]:
            sha256_batch(some_bytes, out=into, engine=engine)
            assert bytes(memoryview(into).cast("B")) == b"".join(expected)
    # Of many small rows, and of rows without bytes.
    many = np.arange(300_007 * 2, dtype=np.uint32).view(np.uint8).reshape(300_007, 8)
    out = np.zeros((300_007, 32), dtype=np.uint8)
    sha256_batch(many, out=out, engine=Engine(threads=1))
    assert out.tobytes() == sha256_batch([row.tobytes() for row in many]).tobytes()
    empty = np.ones((300_000, 32), dtype=np.uint8)
    sha256_batch([bytearray()] * 300_000, out=empty, engine=Engine(threads=1))
    assert set(map(bytes, empty)) == {hashlib.sha256().digest()}


def test_parts_of_each_call(key: PrivateKey) -> None:
    """Signatures of one set, one megabyte in three: several parts of each column."""
    engine, public = Engine(threads=1), key.public_key()
    messages = np.arange(700 * 4, dtype=np.uint64).view(np.uint8).reshape(700, 32)
    out = np.ones((700, key.signature_size), dtype=np.uint8)
    key.sign_batch(messages, out=out, engine=engine, deterministic=True)
    assert out[699].tobytes() == key.sign(messages[699].tobytes(), deterministic=True)
    raw = np.tile(np.frombuffer(public.to_raw(), dtype=np.uint8), (700, 1))
    wrong = [0, 245, 246, 491, 699]
    out[wrong, 77] ^= 1
    expected = [row not in wrong for row in range(700)]
    for keys in [public, [public] * 700, raw, list(raw)]:
        for signatures in [out, list(map(bytearray, out))]:
            assert list(verify_batch(keys, signatures, messages, set=SET, engine=engine)) == expected
    zk, publics = zkdilithium.keygen_batch(3000, engine=engine)
    signatures = np.zeros((3000, zkdilithium.SIGNATURE_SIZE), dtype=np.uint8)
    zk[0].sign_batch(messages.repeat(5, axis=0)[:3000], out=signatures, engine=engine)
    columns: list[Any] = [zk[0].public_key(), [zk[0].public_key()] * 3000, [zk[0].public_key().to_raw()] * 3000]
    for keys in columns:
        assert all(zkdilithium.verify_batch(keys, signatures, messages.repeat(5, axis=0)[:3000], engine=engine))
    assert sum(zkdilithium.verify_batch(np.asarray(publics), signatures, messages.repeat(5, axis=0)[:3000], engine=engine)) == 1


def test_an_error_names_the_row_of_the_whole_call(key: PrivateKey) -> None:
    engine, raw, good = Engine(threads=1), key.public_key().to_raw(), key.sign(b"m")
    keys = [raw] * 40
    keys[17] = keys[30] = raw[:-1]
    with pytest.raises(ValueError, match="^row 17: its public key has another length"):
        verify_batch(keys, [good] * 40, [bytearray(1 << 20)] * 40, set=SET, engine=engine)


def test_out_may_overlap_a_column() -> None:
    """Then nothing is written before all is copied."""
    engine = Engine(threads=1)
    memory = np.arange(500_001 * 8, dtype=np.uint32).view(np.uint8).reshape(500_001, 32)
    for messages, out in [(memory[:-1], memory[1:]), (memory[1:], memory[:-1]), (memory, memory)]:
        expected = sha256_batch(messages.copy(), engine=engine).tobytes()
        sha256_batch(messages, out=out, engine=engine)
        assert out.tobytes() == expected
    rows = list(memory[:-1])
    expected = sha256_batch(memory[:-1].copy(), engine=engine).tobytes()
    sha256_batch(rows, out=memory[1:], engine=engine)
    assert memory[1:].tobytes() == expected


def test_out_may_overlap_an_arrow_array() -> None:
    """Arrow's memory is not copied, and may be written through NumPy: then nothing is written before all is computed."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    engine = Engine(threads=2)
    memory = np.arange(600_001 * 8, dtype=np.uint32).view(np.uint8).reshape(600_001, 32)
    for first, out in [(0, memory[:-1]), (0, memory[1:]), (1, memory[:-1])]:
        rows = memory[first : first + 600_000]
        array = pa.FixedSizeBinaryArray.from_buffers(pa.binary(32), len(rows), [None, pa.py_buffer(rows)])
        expected = sha256_batch(rows.copy(), engine=engine).tobytes()
        sha256_batch(array, out=out, engine=engine)
        assert out.tobytes() == expected


def test_out_may_overlap_offsets_of_arrow() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    rows = 300_000
    memory = np.zeros(rows * 32, dtype=U8)
    offsets = memory[: (rows + 1) * 4].view(np.int32)
    offsets[:] = np.arange(rows + 1) * 2
    data = np.arange(rows, dtype=np.uint16).view(U8)
    array = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    expected = sha256_batch(data.reshape(rows, 2)).tobytes()
    sha256_batch(array, out=memory.reshape(rows, 32))
    assert memory.tobytes() == expected


PEAK = """
import numpy as np
from hypergrove import Engine, sha256_batch
def peak():
    return next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
# Pages that nobody has written take no memory.
rows, engine = np.zeros((512, 1 << 20), dtype=np.uint8), Engine(threads=1)
sha256_batch(rows[:1], engine=engine)
before = peak()
sha256_batch(rows, engine=engine)
print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of memory is asked of Linux")
def test_a_large_column_is_never_copied_at_once() -> None:
    ran = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=120, check=True)
    assert int(ran.stdout) < 100, ran.stdout
