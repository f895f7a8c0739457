"""What comes from other packages' memory: tensors of DLPack, and the fuzzing of all entrances."""

import ast
import ctypes
import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from arrow_exporter import Exporter
from conftest import SET
from dlpack_exporter import IS_COPIED, READ_ONLY, UNVERSIONED, VERSIONED, DlpackExporter

from hypergrove import PrivateKey, sha256_batch, verify_batch


class OnlyDlpack:
    """A tensor without a buffer: NumPy's array behind it has `__dlpack__`."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)


class BeforeVersions(OnlyDlpack):
    """A producer that knows nothing of DLPack 1.0."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self.array.__dlpack__(stream=stream)


@pytest.mark.parametrize("kind", [OnlyDlpack, BeforeVersions])
def test_tensors_are_columns(key: PrivateKey, kind: type[OnlyDlpack]) -> None:
    rows = np.arange(60, dtype=np.uint8).reshape(4, 15)
    assert list(sha256_batch(kind(rows))) == [hashlib.sha256(row.tobytes()).digest() for row in rows]
    part = np.arange(90, dtype=np.uint8)[7:67].reshape(4, 15)
    assert list(sha256_batch(kind(part))) == [hashlib.sha256(row.tobytes()).digest() for row in part]
    assert list(sha256_batch(kind(rows[:0]))) == []
    signatures = kind(np.asarray(key.sign_batch(kind(rows))))
    assert list(verify_batch(key.public_key(), signatures, kind(rows))) == [True] * 4
    raw = kind(np.frombuffer(key.public_key().to_raw() * 4, dtype=np.uint8).reshape(4, -1).copy())
    assert list(verify_batch(raw, signatures, kind(rows), set=SET)) == [True] * 4
    # A tensor of one dimension is one value.
    assert key.public_key().is_valid(kind(np.asarray(key.sign_batch([b"abc"]))[0]), kind(np.frombuffer(bytearray(b"abc"), dtype=np.uint8)))
    assert list(sha256_batch([kind(row) for row in rows])) == list(sha256_batch(rows))


def test_a_tensor_as_out() -> None:
    array = np.zeros((2, 32), dtype=np.uint8)
    out = OnlyDlpack(array)
    assert sha256_batch([b"a", b"b"], out=out) is out
    assert array[1].tobytes() == hashlib.sha256(b"b").digest()
    read_only = np.zeros((2, 32), dtype=np.uint8)
    read_only.flags.writeable = False
    assert list(sha256_batch(OnlyDlpack(read_only))) == [hashlib.sha256(bytes(32)).digest()] * 2
    with pytest.raises(ValueError, match="out is read-only; give"):
        sha256_batch([b"a", b"b"], out=OnlyDlpack(read_only))
    with pytest.raises(ValueError, match="out is a tensor of DLPack before 1.0, which may be read-only; give"):
        sha256_batch([b"a", b"b"], out=BeforeVersions(array))
    with pytest.raises(ValueError, match=r"out has the shape \[2, 32\]"):
        sha256_batch([b"a"], out=OnlyDlpack(array))


U8 = np.uint8


@pytest.mark.parametrize(
    ("tensor", "error", "text"),
    [
        (OnlyDlpack(np.zeros((2, 3), dtype=np.int8)), TypeError, "messages: a tensor of DLPack of int8; .* uint8"),
        (OnlyDlpack(np.zeros((2, 3), dtype=np.float32)), TypeError, "messages: a tensor of DLPack of float32"),
        (OnlyDlpack(np.zeros((2, 3), dtype=bool)), TypeError, "messages: a tensor of DLPack of bool8"),
        (OnlyDlpack(np.zeros(3, dtype=U8)), ValueError, "messages: an array with 1 dimensions; rows are"),
        (OnlyDlpack(np.zeros((2, 3, 4), dtype=U8)), ValueError, "messages: an array with 3 dimensions"),
        (OnlyDlpack(np.zeros((4, 6), dtype=U8)[::2]), ValueError, "messages: the tensor is not contiguous; copy it"),
        (OnlyDlpack(np.zeros((4, 6), dtype=U8).T), ValueError, "messages: the tensor is not contiguous"),
        ([OnlyDlpack(np.zeros((2, 3), dtype=U8))], ValueError, "messages: row 0: a buffer with 2 dimensions"),
        ([OnlyDlpack(np.zeros(3, dtype=np.int32))], TypeError, "messages: row 0: a tensor of DLPack of int32"),
    ],
)
def test_bad_tensors(tensor: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        sha256_batch(tensor)


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"reported": (2, 3)}, ValueError, r"messages: a tensor on cuda:3; copy it to the host's memory, by \.cpu\(\)"),
        ({"device": 2, "reported": (1, 0)}, ValueError, "messages: a tensor on cuda:0; copy it"),
        ({"reported": (10, 0)}, ValueError, "messages: a tensor on rocm:0; copy it"),
        ({"reported": (99, 0)}, ValueError, "messages: a tensor on a device of DLPack's type 99; copy it"),
        ({"reported": 7}, TypeError, "messages: its __dlpack_device__ gives no pair of numbers"),
        ({"version": (2, 0)}, ValueError, r"messages: a tensor of DLPack 2\.0, where 1\.x is understood; give"),
        ({"name": b"used_dltensor"}, ValueError, "messages: its __dlpack__ gives a capsule without a tensor, or one that was used"),
        ({"data": False}, ValueError, "messages: a tensor of DLPack that has bytes and no address; copy"),
        ({"ndim": -1}, ValueError, "messages: a tensor of DLPack that has a negative number of dimensions"),
        ({"ndim": 2**31 - 1}, ValueError, "messages: a tensor of DLPack that has .* more than 64"),
        ({"shape": None, "ndim": 2}, ValueError, "messages: a tensor of DLPack that has no shape"),
        ({"shape": [2, -3]}, ValueError, "messages: a tensor of DLPack that has a negative size"),
        ({"shape": [2**62, 4]}, ValueError, "messages: a tensor of DLPack that has more bytes than memory"),
        ({"strides": [-3, 1]}, ValueError, "messages: the tensor is not contiguous"),
        ({"byte_offset": 2**64 - 1}, ValueError, "messages: a tensor of DLPack that ends beyond the address space"),
    ],
)
@pytest.mark.parametrize("name", [VERSIONED, UNVERSIONED])
def test_hostile_tensors(fields: dict[str, Any], name: bytes, error: type[Exception], text: str) -> None:
    if name == UNVERSIONED and "version" in fields:
        return
    exporter = DlpackExporter(bytearray(64), **({"name": name, "shape": [2, 3]} | fields))
    with pytest.raises(error, match=text):
        sha256_batch(exporter)
    was_taken = "reported" not in fields or "device" in fields
    assert exporter.deleted == (was_taken and "name" not in fields)


def test_tensors_that_must_not_be_written() -> None:
    for flags, text in [(READ_ONLY, "out is read-only"), (IS_COPIED, "out gives a copy of itself"), (0, None)]:
        data = bytearray(64)
        exporter = DlpackExporter(data, shape=[2, 32], flags=flags)
        if text is None:
            assert sha256_batch([b"a", b"b"], out=exporter) is exporter and data[32:] == hashlib.sha256(b"b").digest()
        else:
            with pytest.raises(ValueError, match=text):
                sha256_batch([b"a", b"b"], out=exporter)
            assert data == bytes(64)
        assert exporter.deleted == 1


def test_a_producer_that_fails() -> None:
    class Fails:
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("it needs a gradient")

    class Wrong:
        def __dlpack__(self, **options: Any) -> Any:
            return 7

    with pytest.raises(ValueError, match="messages: its __dlpack__ failed: .*it needs a gradient") as why:
        sha256_batch(Fails())
    assert isinstance(why.value.__cause__, BufferError)
    with pytest.raises(TypeError, match="messages: its __dlpack__ gives int, where a capsule is wanted"):
        sha256_batch(Wrong())


def test_bytes_of_ctypes() -> None:
    """Their format has an order of bytes, and ctypes itself gives no strides."""
    array = (ctypes.c_ubyte * 3 * 2)(tuple(b"abc"), tuple(b"def"))
    view = memoryview(array)
    assert view.format == "<B"
    with pytest.raises(BufferError, match="messages: .* gives no buffer .*strides.*; copy it to bytes"):
        sha256_batch(array)
    assert list(sha256_batch(view)) == [hashlib.sha256(row).digest() for row in (b"abc", b"def")]


def test_sequences_that_lie_about_their_length() -> None:
    class Lying(list[bytes]):
        said = 0

        def __len__(self) -> int:
            return self.said

    rows = Lying([b"a", b"b", b"c"])
    rows.said = 2
    with pytest.raises(ValueError, match="messages: the sequence has more than its 2 rows; give a list"):
        sha256_batch(rows)
    rows.said = 2**60
    with pytest.raises(MemoryError, match="memory"):
        sha256_batch(rows)


def test_a_capsule_is_taken_once() -> None:
    """Also where threads are free and ask for the same capsule at the same moment."""

    class Same:
        """Gives the capsule that it has, to everyone."""

        def __init__(self, method: str, capsule: Any) -> None:
            setattr(type(self), method, lambda self, **options: capsule)

    data, threads = bytearray(b"abcdef"), 4
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(100):
            tensor = DlpackExporter(data, shape=[2, 3])
            array = Exporter(b"w:3", [None, bytes(data)], length=2)
            for method, exporter in [("__dlpack__", tensor), ("__arrow_c_array__", array)]:
                kind = type("Once", (Same,), {})
                shared, barrier = kind(method, getattr(exporter, method)()), Barrier(threads)

                def take(_: int, shared: Any = shared, barrier: Barrier = barrier) -> bool:
                    barrier.wait()
                    try:
                        return list(sha256_batch(shared)) == [hashlib.sha256(row).digest() for row in (b"abc", b"def")]
                    except ValueError as why:
                        assert "used before" in str(why), why
                        return False

                assert sum(pool.map(take, range(threads))) == 1
            assert (tensor.deleted, array.released) == (1, 2)


# Those of a quick run take about a second an entrance.
EXAMPLES = 12_000 if os.environ.get("HYPOTHESIS_PROFILE") == "full" else 400


@pytest.mark.parametrize("entrance", ["buffer", "dlpack", "arrow", "arrow_stream"])
def test_fuzzed(entrance: str, tmp_path: Path) -> None:
    """In a process of its own: a crash ends that one, and what it was about to do is in the file."""
    last = tmp_path / "last"
    fuzz = Path(__file__).with_name("fuzz_entrances.py")
    command = [sys.executable, "-X", "faulthandler", str(fuzz), entrance, str(EXAMPLES), str(last)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, f"{ran.stderr[-5000:]}\nthe last: {last.read_text()}"
    results: dict[str, int] = ast.literal_eval(ran.stdout.splitlines()[-1])
    # The examples reach both ends: good memory and what is refused.
    assert results["a result"] >= EXAMPLES // 10 and results["ValueError"] >= EXAMPLES // 10, results
