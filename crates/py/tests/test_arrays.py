"""Results act as arrays: in Python alone, in NumPy, in pandas and in Polars."""

import copy
import hashlib
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from conftest import SET

from hypergrove import Array, Engine, PrivateKey, sha256_batch, verify_batch

ROWS = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"j"]


@pytest.fixture(scope="module")
def valid(key: PrivateKey) -> Array:
    """Every third verdict is false."""
    return verify_batch(key.public_key(), key.sign_batch(ROWS), [row if i % 3 else b"x" for i, row in enumerate(ROWS)])


@pytest.fixture(scope="module")
def gaps(key: PrivateKey) -> Array:
    """Verdicts with nulls: row 1 was one, and the keys of rows 4 and 9 are malformed."""
    signatures: list[bytes | None] = list(key.sign_batch(ROWS))
    signatures[1] = None
    keys = [b"short" if i in (4, 9) else key.public_key().to_raw() for i in range(len(ROWS))]
    return verify_batch(keys, signatures, ROWS[:8] + [b"x"] * 2, set=SET, nulls="propagate", malformed="null")


def test_verdicts(valid: Array, gaps: Array) -> None:
    assert valid.tolist() == list(valid) == [i % 3 != 0 for i in range(10)]
    assert (valid.all(), valid.any()) == (False, True)
    assert (valid[1:3].all(), valid[::3].any(), valid[:0].all(), valid[:0].any()) == (True, False, True, False)
    assert (~valid).tolist() == [i % 3 == 0 for i in range(10)] and (~~valid).tolist() == valid.tolist()
    assert (valid.count(True), valid.count(None), valid.index(True), valid.index(False, 1)) == (6, 0, 1, 3)
    # A null is neither valid nor invalid.
    assert gaps.tolist() == [True, None, True, True, None, True, True, True, False, None]
    assert (~gaps).tolist() == [False, None, False, False, None, False, False, False, True, None]
    assert (~gaps).reasons() == gaps.reasons() and len(gaps.reasons()) == 3
    assert (gaps[:1].all(), gaps[:2].all(), gaps[1:2].any(), gaps.count(None)) == (True, False, False, 3)
    sums = sha256_batch(ROWS)
    assert sums.tolist() == [hashlib.sha256(row).digest() for row in ROWS] and sums.count(sums[3]) == 1
    for call in (sums.all, sums.any, lambda: ~sums):
        with pytest.raises(TypeError, match=r"<hypergrove.Array of uint8, shape \(10, 32\)> has no verdicts"):
            call()
    with pytest.raises(ValueError, match="is not in list"):
        valid.index(None)
    with pytest.raises(ValueError, match=r"use array.all\(\) or array.any\(\)"):
        bool(valid)


def test_slices(valid: Array, gaps: Array) -> None:
    numbers = [None, 0, 1, 3, 9, 10, 11, -1, -4, -10, -11, sys.maxsize, -sys.maxsize - 1]
    flat = Engine(devices="cpu").empty(10)
    memoryview(flat)[:] = bytes(range(10))
    for array in (valid, gaps, sha256_batch(ROWS), flat):
        rows, why = array.tolist(), dict(array.reasons())
        for start in numbers:
            for stop in numbers:
                for step in (None, 1, 2, 7, -1, -3, sys.maxsize, -sys.maxsize):
                    part = slice(start, stop, step)
                    taken = array[part]
                    assert isinstance(taken, Array) and taken.tolist() == rows[part], part
                    assert taken.shape[1:] == array.shape[1:] and taken.format == array.format
                    assert taken.reasons() == [(i, why[row]) for i, row in enumerate(range(10)[part]) if row in why], part
    with pytest.raises(ValueError, match="zero"):
        valid[::0]
    for index in ("1", 1.0, None, valid, [True] * 10):
        with pytest.raises(TypeError, match=r"the number of a row or a slice; numpy.asarray\(array\) takes masks"):
            valid[index]  # type: ignore[call-overload]
    with pytest.raises(IndexError):
        valid[10]
    with pytest.raises(IndexError):
        valid[2**70]
    endless = Engine(devices="cpu").empty((2**60, 0))
    assert endless[1:].shape == (2**60 - 1, 0) and pickle.loads(pickle.dumps(endless)).shape == endless.shape
    # A slice is a copy, which nothing that happens to its array changes.
    part = flat[2:4]
    memoryview(flat)[:] = bytes(10)
    assert part.tobytes() == b"\2\3"


def test_arrays_pickle(valid: Array, gaps: Array, key: PrivateKey) -> None:
    empty = Engine(devices="cpu").empty((3, 0))
    for array in (valid, gaps, sha256_batch(ROWS), key.sign_batch(ROWS[:2]), valid[:0], Engine(devices="cpu").empty(5), empty):
        copies = [pickle.loads(pickle.dumps(array, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
        for other in [*copies, copy.copy(array), copy.deepcopy(array)]:
            assert type(other) is Array and other is not array
            assert (other.tolist(), other.shape, other.format) == (array.tolist(), array.shape, array.format)
            assert (other.reasons(), other.null_count) == (array.reasons(), array.null_count)
    restore, (data, form, shape, reasons) = gaps.__reduce__()
    assert restore(b"\2" + data[1:], form, shape, reasons).tobytes() == b"\1" + data[1:]
    for damaged in [
        (data[1:], form, shape, reasons),
        (data, "x", shape, reasons),
        (data, form, [5, 2], reasons),
        (data, "B", [1, 2, 5], reasons),
        (data, form, [], reasons),
        (data, form, shape, [(10, "null")]),
        (data, form, shape, reasons[::-1]),
        (b"", "B", [2**60, 0], reasons),
    ]:
        with pytest.raises(ValueError, match="the pickle of an array is damaged"):
            restore(*damaged)
    with pytest.raises(MemoryError):
        restore(data, "B", [2**62, 2**62], [])


def test_arrays_are_sequences(valid: Array) -> None:
    assert isinstance(valid, Sequence) and True in valid and None not in valid
    assert list(reversed(valid[:4])) == [False, True, True, False]
    match valid[:2]:
        case [first, second]:
            assert (first, second) == (False, True)
        case _:
            raise AssertionError


def test_numpy(valid: Array, gaps: Array) -> None:
    flags = np.array(valid.tolist())
    assert valid.dtype == np.bool_ and sha256_batch(ROWS).dtype == np.uint8 and (valid.ndim, sha256_batch(ROWS).ndim) == (1, 2)
    assert np.where(valid, 1, 2).tolist() == [1 if flag else 2 for flag in flags]
    assert (np.all(valid), np.any(valid), np.all(valid[1:3])) == (False, True, True)
    assert np.all(valid, axis=0, keepdims=True).tolist() == [False] and valid.any(axis=0) and not np.all(gaps)
    out = np.array(False)
    assert np.any(valid, out=out) is out and out
    assert np.arange(10)[valid].tolist() == np.flatnonzero(valid).tolist() == [1, 2, 4, 5, 7, 8]
    assert np.logical_not(valid).tolist() == (~valid).tolist() and (flags & valid).tolist() == flags.tolist()
    view = valid.to_numpy()
    assert np.shares_memory(view, np.asarray(valid)) and not np.shares_memory(view, valid.to_numpy(copy=True))
    assert valid.to_numpy("u1").dtype == np.uint8


def test_without_numpy(key: PrivateKey) -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "import pickle, hypergrove\n"
        "sums = hypergrove.sha256_batch([b'a', b'b']); same = sums == [sums[0], b'']\n"
        "assert not hasattr(same, 'dtype') and same.any() and not same.all() and (~same).tolist() == [False, True]\n"
        "assert pickle.loads(pickle.dumps(sums))[::-1].tolist() == sums.tolist()[::-1]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_masks_of_pandas(valid: Array, gaps: Array) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"m": ROWS}, index=range(100, 110))
    for mask in (valid, gaps, valid == False):  # noqa: E712
        flags = [bool(flag) for flag in mask]
        rows = [row for row, flag in zip(ROWS, flags, strict=True) if flag]
        # Without its help, pandas takes verdicts for labels, and iloc and an index take them for the numbers 0 and 1.
        for taken in (frame[mask], frame.loc[mask], frame.iloc[mask], frame.query("@mask")):
            assert taken["m"].tolist() == rows
        assert frame.m[mask].tolist() == frame.m.loc[mask].tolist() == frame.loc[mask, "m"].tolist() == rows
        assert frame.index[mask].tolist() == [100 + i for i, flag in enumerate(flags) if flag]
        assert frame.m.where(mask, None).notna().tolist() == flags
        assert frame.assign(valid=mask)["valid"].tolist() == pd.Series(mask).tolist() == flags
        assert pd.DataFrame({"valid": mask})["valid"].dtype == bool
        changed = frame.copy()
        changed.loc[mask, "m"] = b"!"
        assert (changed.m == b"!").tolist() == flags
    with pytest.raises((IndexError, ValueError)):
        frame[valid[:5]]


def test_masks_of_polars(valid: Array, gaps: Array) -> None:
    pl = pytest.importorskip("polars")
    frame, flags = pl.DataFrame({"m": ROWS}), valid.tolist()
    rows = [row for row, flag in zip(ROWS, flags, strict=True) if flag]
    for taken in (frame.filter(valid), frame.lazy().filter(valid).collect(), frame.remove(~valid), frame.filter(pl.Series(valid))):
        assert taken["m"].to_list() == rows
    assert frame["m"].filter(valid).to_list() == rows
    for name, mask in (("valid", valid), ("gaps", gaps)):
        series = pl.Series(name, mask)
        assert (series.name, series.dtype, series.to_list()) == (name, pl.Boolean, mask.tolist())
        assert frame.with_columns(series)[name].to_list() == frame.with_columns(x=pl.Series(mask))["x"].to_list() == mask.tolist()
        assert pl.DataFrame({name: mask})[name].to_list() == mask.tolist()
    assert frame.filter(pl.Series(gaps))["m"].to_list() == [row for row, flag in zip(ROWS, gaps, strict=True) if flag]
    sums: Any = pl.Series("s", sha256_batch(ROWS))
    assert (sums.name, sums.dtype, sums.to_list()) == ("s", pl.Binary, sha256_batch(ROWS).tolist())
