"""Columns of Arrow: those of pyarrow, and hostile ones that it would not make."""

import hashlib
import io
import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrow_exporter import Exporter, StreamExporter
from conftest import SET
from hypothesis import given, settings
from hypothesis import strategies as st

from hypergrove import Engine, PrivateKey, sha256_batch, verify_batch, zkdilithium


def sums(rows: list[bytes]) -> list[bytes]:
    return [hashlib.sha256(row).digest() for row in rows]


def binary(offsets: list[int], data: bytes, code: str = "i", **fields: Any) -> Exporter:
    """Binary, or LargeBinary with the code "q"."""
    fields = {"length": len(offsets) - 1} | fields
    return Exporter({"i": b"z", "q": b"Z"}[code], [None, struct.pack(f"{len(offsets)}{code}", *offsets), data], **fields)


def view(length: int, buffer: int | bytes = b"", offset: int = 0) -> bytes:
    """A view of a buffer, or with its value in itself."""
    if isinstance(buffer, bytes):
        return struct.pack("i12s", length, buffer)
    return struct.pack("i4sii", length, b"", buffer, offset)


LENGTHS: Any = object()


def viewed(views: list[bytes], buffers: list[bytes | None], lengths: list[int] | None = LENGTHS, **fields: Any) -> Exporter:
    """BinaryView."""
    if lengths is LENGTHS:
        lengths = [len(buffer or b"") for buffer in buffers]
    last = None if lengths is None else struct.pack(f"{len(lengths)}q", *lengths)
    return Exporter(b"vz", [None, b"".join(views), *buffers, last], **({"length": len(views)} | fields))


def indexed(indices: list[int], dictionary: Exporter, code: str = "b", validity: bytes | None = None, **fields: Any) -> Exporter:
    """A dictionary-encoded column; `code` is that of `struct`."""
    format = {"b": b"c", "B": b"C", "h": b"s", "H": b"S", "i": b"i", "I": b"I", "q": b"l", "Q": b"L"}[code]
    data = [validity, struct.pack(f"{len(indices)}{code}", *indices)]
    return Exporter(format, data, dictionary, **({"length": len(indices)} | fields))


@pytest.mark.parametrize("code", ["i", "q"])
def test_arrays_and_slices(code: str) -> None:
    exporter = binary([0, 3, 3, 8], b"abcdefgh", code)
    assert list(sha256_batch(exporter)) == sums([b"abc", b"", b"defgh"])
    # The schema and the array were taken, and given back.
    assert exporter.released == 2
    with pytest.raises(ValueError, match="used before"):
        sha256_batch(exporter)
    assert list(sha256_batch(binary([9, 1, 3, 8], b"abcdefgh", code, offset=1, length=2))) == sums([b"bc", b"defgh"])
    assert list(sha256_batch(Exporter(b"w:2", [None, b"aabbcc"], offset=1, length=2))) == sums([b"bb", b"cc"])
    assert list(sha256_batch(Exporter(b"w:0", [None, b""], length=2))) == sums([b"", b""])
    assert sha256_batch(Exporter(b"z", [None, None, None], length=0)).shape == (0, 32)
    # All rows are empty, and there are no bytes.
    assert list(sha256_batch(Exporter(b"z", [None, bytes(12), None], length=2))) == sums([b"", b""])


def test_streams() -> None:
    first, second = binary([0, 3, 8], b"abcdefgh"), binary([2, 3, 3], b"xyz")
    stream = StreamExporter([first, second])
    assert list(sha256_batch(stream)) == sums([b"abc", b"defgh", b"z", b""])
    # One schema, two arrays.
    assert (first.released, second.released, stream.released) == (2, 1, 1)
    assert list(sha256_batch(StreamExporter([binary([0, 3, 8], b"abcdefgh")]))) == sums([b"abc", b"defgh"])
    parts = [Exporter(b"w:2", [None, b"aabb"], length=2), Exporter(b"w:2", [None, b"cc"], length=1)]
    assert list(sha256_batch(StreamExporter(parts))) == sums([b"aa", b"bb", b"cc"])
    with pytest.raises(ValueError, match="messages: the Arrow stream failed: disk on fire"):
        sha256_batch(StreamExporter([binary([0, 3], b"abc")], error=b"disk on fire"))
    with pytest.raises(ValueError, match="^messages: row 2: its offsets"):
        sha256_batch(StreamExporter([binary([0, 1, 2], b"ab"), binary([0, 2, 1], b"ab")]))


def test_views() -> None:
    long, longer = b"a value that lies in a buffer", b"another one, in another buffer"
    views = [view(3, b"abc"), view(len(long), 0, 0), view(0), view(12, b"twelve bytes"), view(len(longer), 1, 4), view(13, 0, 2)]
    expected = [b"abc", long, b"", b"twelve bytes", longer, long[2:15]]
    exporter = viewed(views, [long, b"____" + longer])
    assert list(sha256_batch(exporter)) == sums(expected)
    assert exporter.released == 2
    assert list(sha256_batch(viewed(views, [long, b"____" + longer], offset=1, length=4))) == sums(expected[1:5])
    # Without buffers, and with views that are not aligned.
    assert list(sha256_batch(viewed(views[:1] * 3, []))) == sums(expected[:1] * 3)
    assert list(sha256_batch(viewed(views[:1], [], lengths=None))) == sums(expected[:1])
    assert list(sha256_batch(viewed([b"\0" + views[0]], [], length=1, misaligned_by=1))) == sums(expected[:1])
    assert sha256_batch(viewed([], [])).shape == (0, 32)
    stream = StreamExporter([viewed(views, [long, b"____" + longer]), viewed([], []), viewed(views[:1], [])])
    assert list(sha256_batch(stream)) == sums(expected + expected[:1])


@pytest.mark.parametrize("code", ["b", "B", "h", "H", "i", "I", "q", "Q"])
def test_dictionaries(code: str) -> None:
    values = [b"abc", b"", b"de"]
    made = indexed([2, 0, 1, 0], binary([0, 3, 3, 5], b"abcde"), code)
    assert list(sha256_batch(made)) == sums([values[at] for at in [2, 0, 1, 0]])
    assert made.released == 2
    made = indexed([2, 0, 1, 0], Exporter(b"w:2", [None, b"xxaabbcc"], length=3, offset=1), code, offset=1, length=2)
    assert list(sha256_batch(made)) == sums([b"aa", b"bb"])
    made = indexed([1, 0], viewed([view(3, b"abc"), view(14, 0, 0)], [b"fourteen bytes"]), code)
    assert list(sha256_batch(made)) == sums([b"fourteen bytes", b"abc"])
    # Each chunk has a dictionary of its own.
    stream = StreamExporter([indexed([1, 0], binary([0, 1, 2], b"ab"), code), indexed([0, 0], binary([0, 1], b"c"), code)])
    assert list(sha256_batch(stream)) == sums([b"b", b"a", b"c", b"c"])
    if code == "B":
        assert list(sha256_batch(indexed([200], binary([0] * 257, b""), code))) == sums([b""])
    # Nulls of the column, and of its dictionary.
    dictionary = Exporter(b"z", [b"\x02", struct.pack("3i", 0, 1, 2), b"ab"], length=2, null_count=1)
    made = indexed([1, 0, 1, 99], dictionary, code, validity=b"\x07", null_count=-1)
    assert list(sha256_batch(made, nulls="propagate")) == [*sums([b"b"]), None, *sums([b"b"]), None]
    dictionary = Exporter(b"z", [b"\x02", struct.pack("3i", 0, 1, 2), b"ab"], length=2, null_count=1)
    with pytest.raises(ValueError, match="^messages: row 1 is null; drop the nulls, fill them, or pass nulls="):
        sha256_batch(indexed([1, 0], dictionary, code))
    # A null of the dictionary that no row has is no null.
    dictionary = Exporter(b"z", [b"\x02", struct.pack("3i", 0, 1, 2), b"ab"], length=2, null_count=1)
    assert list(sha256_batch(indexed([1, 1], dictionary, code))) == sums([b"b", b"b"])


@pytest.mark.parametrize(
    ("exporter", "error", "text"),
    [
        (lambda: binary([0, 5, 3], b"abcdefgh"), ValueError, "row 0: its offsets"),
        (lambda: binary([0, 5, 3, 8], b"abcdefgh"), ValueError, "row 1: its offsets"),
        (lambda: binary([0, -5, 8], b"abcdefgh"), ValueError, "row 0: its offsets"),
        (lambda: binary([-1, 8], b"abcdefgh"), ValueError, "row 0: its offsets"),
        (lambda: binary([0, 2**31 - 1, 8], b"abcdefgh"), ValueError, "row 0: its offsets"),
        (lambda: binary([0, 2**63 - 1, 8], b"abcdefgh", "q"), ValueError, "row 0: its offsets"),
        (lambda: binary([0, 3, -1], b"abc"), ValueError, "offsets that are not there, not aligned or negative"),
        (lambda: binary([0, 3], b"abc", misaligned_by=1), ValueError, "not aligned"),
        (lambda: binary([0, 3], b"abc", length=-1), ValueError, "a negative length"),
        (lambda: binary([0, 3], b"abc", offset=-1), ValueError, "a negative offset"),
        (lambda: binary([0, 3], b"abc", offset=2**63 - 1), ValueError, "more rows than memory"),
        (lambda: binary([0, 3], b"abc", length=2**63 - 1), ValueError, "more rows than memory"),
        (lambda: binary([0, 3], b"abc", n_buffers=2), ValueError, "another number of buffers"),
        (lambda: binary([0, 3], b"abc", n_buffers=-1), ValueError, "another number of buffers"),
        (lambda: binary([0, 3], b"abc", buffers=None), ValueError, "another number of buffers"),
        (lambda: binary([0, 3], b"abc", n_children=1), ValueError, "another number of buffers"),
        (lambda: Exporter(b"z", [None, None, b"abc"], length=1), ValueError, "offsets that are not there"),
        (lambda: binary([0, 3], b"abc", null_count=1), ValueError, "has nulls and does not say where; validate it"),
        (lambda: Exporter(b"z", [None, struct.pack("2i", 0, 3), None], length=1), ValueError, "has no bytes"),
        (lambda: Exporter(b"w:3", [None, None], length=1), ValueError, "has no bytes"),
        (lambda: Exporter(b"w:9223372036854775807", [None, b""], length=2), ValueError, "messages: an Arrow array"),
        (lambda: Exporter(b"z", [b"\x05", bytes(16), b""], length=3, null_count=-1), ValueError, "row 1 is null"),
        (lambda: Exporter(b"w:1", [b"\x0d", b"abcd"], length=2, offset=1, null_count=1), ValueError, "row 0 is null"),
        (lambda: Exporter(b"+vl", [None, bytes(16), b""], length=1), TypeError, "an Arrow column of lists; if they are"),
        (lambda: Exporter(b"w:-1", [None, b""], length=1), TypeError, r"an unknown format, 'w:-1'; cast it to binary"),
        (lambda: Exporter(b"w:99999999999999999999", [None, b""], length=1), TypeError, r"an unknown format, '…' \(22 characters, not shown\)"),
        (lambda: Exporter(b"", [None, b""], length=1), TypeError, "an unknown format, ''"),
        (lambda: Exporter(b"z", [None, b"", b""], binary([0], b"")), TypeError, "an Arrow dictionary whose indices are no integers; validate"),
        (lambda: indexed([0], Exporter(b"l", [None, bytes(8)])), TypeError, "an Arrow dictionary of integers; `pc.cast"),
        (lambda: indexed([0], indexed([0], binary([0, 1], b"a"))), TypeError, "an Arrow dictionary of dictionaries; nothing casts these to bytes"),
        (lambda: indexed([0], binary([0, 1], b"a"), has_dictionary=False), ValueError, "an Arrow array that has no dictionary; validate"),
        (lambda: indexed([0], binary([0, 1], b"a", n_buffers=2)), ValueError, "whose dictionary has another number of buffers"),
        (lambda: indexed([0, 1], binary([0, 1], b"a")), ValueError, "row 1: its index is negative or lies beyond the dictionary"),
        (lambda: indexed([0, -1], binary([0, 1], b"a")), ValueError, "row 1: its index is negative or lies beyond the dictionary"),
        (lambda: indexed([-56], binary([0] * 257, b"")), ValueError, "row 0: its index is negative"),
        (lambda: indexed([2**63], binary([0, 1], b"a"), "Q"), ValueError, "row 0: its index is negative or lies beyond"),
        (lambda: indexed([1], binary([0, 2, 1], b"ab")), ValueError, "row 0: its offsets decrease"),
        (lambda: viewed([view(20, 0, 0)], [b"a" * 20], lengths=None), ValueError, "does not say how long its buffers are"),
        (lambda: viewed([view(20, 0, 0)], [b"a" * 20], lengths=[-1]), ValueError, "does not say how long its buffers are"),
        (lambda: viewed([view(20, 0, 0)], [None], lengths=[20]), ValueError, "has no bytes"),
        (lambda: viewed([view(20, 0, 0)], [b"a" * 20], lengths=[2**63 - 1]), ValueError, "ends beyond the address space"),
        (lambda: viewed([view(20, 0, 0)], [b"a" * 20], n_buffers=2), ValueError, "another number of buffers"),
        (lambda: viewed([view(20, 0, 0)], [b"a" * 20], n_buffers=-1), ValueError, "another number of buffers"),
        (lambda: Exporter(b"vz", [None, None, b""], length=1), ValueError, "has no bytes"),
        (lambda: viewed([view(3), view(20, 1, 0)], [b"a" * 20]), ValueError, "row 1: its view has a negative length, or lies beyond"),
        (lambda: viewed([view(3), view(20, -1, 0)], [b"a" * 20]), ValueError, "row 1: its view"),
        (lambda: viewed([view(20, 0, 0), view(20, 0, 1)], [b"a" * 20]), ValueError, "row 1: its view"),
        (lambda: viewed([view(20, 0, -1)], [b"a" * 20]), ValueError, "row 0: its view"),
        (lambda: viewed([view(2**31 - 1, 0, 2**31 - 1)], [b"a" * 20]), ValueError, "row 0: its view"),
        (lambda: viewed([view(-1)], []), ValueError, "row 0: its view"),
        (lambda: viewed([view(-(2**31), 0, 0)], [b"a" * 20]), ValueError, "row 0: its view"),
        (lambda: Exporter(None, [None, b"", b""]), ValueError, "without a format"),
        (lambda: Exporter(b"w:0", [None, b""], length=2**50), MemoryError, "memory"),
    ],
)
def test_hostile_arrays(exporter: Any, error: type[Exception], text: str) -> None:
    made = exporter()
    with pytest.raises(error, match=text):
        sha256_batch(made)
    assert made.released == 2


def test_capsules_with_other_names() -> None:
    exporter = binary([0, 3], b"abc")
    exporter.capsules = (b"arrow_schema", b"arrow_schema")
    with pytest.raises(TypeError, match='messages: its Arrow interface gave no capsule "arrow_array"'):
        sha256_batch(exporter)

    class Odd:
        def __arrow_c_array__(self) -> Any:
            return self.given

        given: Any = None

    for given_ in [None, 7, (), (1, 2), (exporter, exporter)]:
        Odd.given = given_
        with pytest.raises(TypeError, match="messages: .* gave no"):
            sha256_batch(Odd())


@settings(max_examples=max(300, settings().max_examples))
@given(
    st.lists(st.integers(-3, 40), min_size=1, max_size=12),
    st.sampled_from("iq"),
    st.integers(-1, 12),
    st.integers(-1, 14),
    st.integers(-1, 3),
)
def test_any_offsets(offsets: list[int], code: str, offset: int, length: int, null_count: int) -> None:
    """As long as the array is as long as it says, no offsets do harm. Offsets that are right are right."""
    if offset + length >= len(offsets):
        return
    data = bytes(range(40))
    exporter = binary(offsets, data, code, offset=offset, length=length, null_count=null_count)
    try:
        hashed = list(sha256_batch(exporter))
    except ValueError:
        hashed = None
    used = offsets[offset : offset + length + 1] if offset >= 0 and length >= 0 else [-1]
    # Who counts nulls must say where they are.
    right = length == 0 and offset >= 0 or used == sorted(used) and used[0] >= 0 and null_count <= 0
    expected = [data[a:b] for a, b in zip(used, used[1:], strict=False)]
    assert hashed == (sums(expected) if right else None)
    assert exporter.released == 2


def test_pyarrow(key: PrivateKey) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    messages = [b"a", b"", b"ccc", b"dddd"]
    signatures = list(key.sign_batch(messages))
    raw = [key.public_key().to_raw()] * 4
    for kind in [pa.binary(), pa.large_binary()]:
        texts = pa.array(messages, kind)
        assert list(sha256_batch(texts)) == sums(messages)
        assert list(sha256_batch(texts[1:3])) == sums(messages[1:3])
        assert list(sha256_batch(pa.chunked_array([texts[:1], texts[1:]]))) == sums(messages)
        assert list(sha256_batch(pa.chunked_array([], kind))) == []
        fixed = pa.array(signatures, pa.binary(key.signature_size))
        keys = pa.array(raw, pa.binary(32))
        for columns in [(keys, fixed, texts), (pa.array(raw), pa.array(signatures, kind), texts)]:
            assert list(verify_batch(*columns, set=SET)) == [True] * 4
            assert list(verify_batch(*(column[2:] for column in columns), set=SET)) == [True] * 2
    with pytest.raises(ValueError, match="row 1 is null"):
        sha256_batch(pa.array([b"a", None]))
    assert list(sha256_batch(pa.array([None, b"a"])[1:])) == sums([b"a"])
    assert list(sha256_batch(pa.array(["a", "ä"]))) == sums([b"a", "ä".encode()])
    for wrong in [pa.array([1, 2]), pa.array([[b"a"]]), pa.array([1, 1]).dictionary_encode(), pa.table({"a": messages})]:
        with pytest.raises(TypeError, match="of (integers|lists|structs); "):
            sha256_batch(wrong)


def test_a_producer_that_can_check_itself_is_asked() -> None:
    class Validated(Exporter):
        def validate(self) -> None:
            raise OSError("offsets beyond the bytes")

    with pytest.raises(ValueError, match="messages: offsets beyond the bytes"):
        sha256_batch(Validated(b"z", [None, struct.pack("2i", 0, 1 << 30), b"abc"], length=1))

    class Interrupted(Exporter):
        def validate(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sha256_batch(Interrupted(b"z", [None, struct.pack("2i", 0, 1), b"abc"], length=1))


def test_an_error_names_the_column(key: PrivateKey) -> None:
    public, signatures = key.public_key(), [key.sign(b"a"), key.sign(b"b")]
    with pytest.raises(ValueError, match="^messages: row 0: its offsets"):
        verify_batch(public, signatures, binary([0, 2, 1], b"ab"))
    with pytest.raises(ValueError, match="^signatures: row 0: its offsets"):
        verify_batch(public, binary([0, 2, 1], b"ab"), binary([0, 1, 2], b"ab"))
    assert list(verify_batch(public, signatures, binary([0, 1, 2], b"ab"))) == [True, True]


def kinds(pa: Any) -> list[Any]:
    """The types of values, with those of dictionaries."""
    plain = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string(), pa.string_view()]
    return [*plain, *(pa.dictionary(index, kind) for index in (pa.int8(), pa.uint64()) for kind in (plain[0], plain[4]))]


def test_every_type_of_pyarrow(key: PrivateKey) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    texts = [b"a", b"", None, b"a longer value, of more than twelve bytes", b"a", None, b"ccc"]
    expected = [None if text is None else hashlib.sha256(text).digest() for text in texts]
    good = [text for text in texts if text is not None]
    for kind in kinds(pa):

        def array(rows: list[bytes | None], kind: Any = kind) -> Any:
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            made = pa.array([None if row is None else row.decode() for row in rows], pa.string()).cast(plain)
            return pa.DictionaryArray.from_arrays(*of(made, kind)) if plain is not kind else made

        def of(made: Any, kind: Any) -> Any:
            encoded = made.dictionary_encode()
            return encoded.indices.cast(kind.index_type), encoded.dictionary

        column = array(texts)
        hashed = sha256_batch(column, nulls="propagate")
        assert list(hashed) == expected and hashed.null_count == 2, kind
        assert hashed.reasons() == [(2, "null"), (5, "null")]
        assert list(sha256_batch(column[2:5], nulls="propagate")) == expected[2:5]
        assert list(sha256_batch(column[3:5])) == expected[3:5]
        assert list(sha256_batch(array(good))) == sums(good), kind
        chunked = pa.chunked_array([column[:2], column[:0], column[2:], array([b"x", None])])
        assert list(sha256_batch(chunked, nulls="propagate")) == [*expected, *sums([b"x"]), None]
        assert list(sha256_batch(pa.chunked_array([], kind))) == []
        assert sha256_batch(column[:0]).shape == (0, 32)
        with pytest.raises(ValueError, match="^messages: row 2 is null; "):
            sha256_batch(column)
        with pytest.raises(ValueError, match="^messages: row 7 is null; "):
            sha256_batch(pa.chunked_array([array(good), column]))
        # Those of a chunk that was cut away.
        assert list(sha256_batch(array([None, b"a"])[1:])) == sums([b"a"])
        signatures = key.sign_batch(column, nulls="propagate")
        assert list(verify_batch(key.public_key(), signatures, column, nulls="propagate")) == [text is not None or None for text in texts]


def test_nulls_of_every_column(key: PrivateKey, other: PrivateKey) -> None:
    """The verdict is null where any column is, in whatever form the columns are."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    rows = 40
    signers = [key, other]
    messages: list[Any] = [bytes([i]) * 5 for i in range(rows)]
    signatures: list[Any] = [signers[i % 2].sign(message, deterministic=True) for i, message in enumerate(messages)]
    keys: list[Any] = [signers[i % 2].public_key().to_raw() for i in range(rows)]
    signatures[7], signatures[12] = bytes(len(signatures[7])), b"short"
    expected: list[Any] = [i not in (7, 12) for i in range(rows)]
    whole = {"keys": list(keys), "signatures": list(signatures), "messages": list(messages)}
    for column, at in [(messages, 0), (messages, 7), (signatures, 9), (signatures, 10), (keys, 10), (keys, 20), (messages, 39)]:
        column[at] = expected[at] = None

    def forms(column: list[Any]) -> dict[str, Any]:
        arrow = pa.array(column, pa.binary())
        encoded = arrow.dictionary_encode()
        with_null = pa.concat_arrays([encoded.dictionary, pa.array([None], pa.binary())])
        indices = pa.array([len(with_null) - 1 if at is None else at for at in encoded.indices.to_pylist()], pa.int16())
        return {
            "a list": column,
            "a tuple of views": tuple(None if row is None else memoryview(row) for row in column),
            "an array of objects": np.array([*column, 7], dtype=object)[:-1],
            "binary": arrow,
            "views": arrow.cast(pa.binary_view()),
            "chunks": pa.chunked_array([arrow[:11], arrow[11:]]),
            "a dictionary": encoded,
            "nulls in a dictionary": pa.DictionaryArray.from_arrays(indices, with_null),
            "chunks of dictionaries": pa.chunked_array([arrow[:20].dictionary_encode(), arrow[20:].dictionary_encode()]),
        }

    for what in forms(keys):
        columns = [forms(column)[what] for column in (keys, signatures, messages)]
        valid = verify_batch(*columns, set=SET, nulls="propagate")
        assert list(valid) == expected, what
        assert valid.null_count == 6 and [row for row, _ in valid.reasons()] == [0, 7, 9, 10, 20, 39]
        assert {why for _, why in valid.reasons()} == {"null"}
        assert list(np.asarray(valid)) == [bool(verdict) for verdict in expected]
        assert pa.array(valid).to_pylist() == expected
        assert "nulls: 6" in repr(valid)
        for at, name in enumerate(["public_keys", "signatures", "messages"]):
            one = [forms(list(column))[what] for column in whole.values()]
            one[at] = columns[at]
            with pytest.raises(ValueError, match=f"^{name}: row [0-9]+ is null; drop the nulls, fill them, or pass nulls=\"propagate\""):
                verify_batch(*one, set=SET)
    # Columns without nulls next to one with some: packed ones are copied as far as there are rows.
    fixed = np.frombuffer(b"".join(whole["keys"]), dtype=np.uint8).reshape(rows, -1)
    engine = Engine(threads=1)
    for packed in [fixed, fixed.copy(), sha256_batch([b""] * rows, engine=engine)]:
        hidden = sha256_batch(packed, nulls="propagate", malformed="null")
        assert hidden.null_count == 0 and hidden.reasons() == []
    ours = engine.empty(fixed.shape)
    with memoryview(ours) as to:
        to.cast("B")[:] = fixed.tobytes()
    for column in [fixed, ours, (np.asarray(ours), ours)[1]]:
        verdicts = list(verify_batch(column, signatures, messages, set=SET, nulls="propagate"))
        assert verdicts == [None if None in (a, b) else a is not None and i not in (7, 12) for i, (a, b) in enumerate(zip(signatures, messages, strict=True))]
    objects = [signers[i % 2].public_key() for i in range(rows)]
    assert list(verify_batch(objects, signatures, messages, nulls="propagate")) == verdicts
    one_key = verify_batch(key.public_key(), signatures, messages, nulls="propagate")
    assert list(one_key) == [verdict if verdict is None else verdict and i % 2 == 0 for i, verdict in enumerate(verdicts)]
    # Nothing but nulls.
    none = [None] * 3
    for columns in [(none, none, none), (pa.array(none, pa.binary()),) * 3, (pa.array(none, pa.dictionary(pa.int8(), pa.binary())),) * 3]:
        assert list(verify_batch(*columns, set=SET, nulls="propagate")) == none
        assert list(key.sign_batch(columns[0], nulls="propagate")) == none
        with pytest.raises(ValueError, match="256"):
            verify_batch(*columns, set=SET, nulls="propagate", context=bytes(256))


def test_out_cannot_hold_nulls(key: PrivateKey) -> None:
    out = np.zeros((1, 32), dtype=np.uint8)
    for options in [{"nulls": "propagate"}, {"malformed": "null"}]:
        with pytest.raises(TypeError, match="^out cannot hold nulls; leave it out"):
            sha256_batch([b""], out=out, **options)  # type: ignore[call-overload]
    array = sha256_batch([None, b"a"], nulls="propagate")
    assert array.tobytes() == bytes(32) + hashlib.sha256(b"a").digest()
    with pytest.raises(BufferError, match="it has nulls"):
        sha256_batch([b"a", b"b"], out=array)
    # As a column, it has its nulls.
    with pytest.raises(ValueError, match="^messages: row 0 is null"):
        sha256_batch(array)
    assert list(sha256_batch(array, nulls="propagate"))[0] is None
    with pytest.raises(ValueError, match="^messages: row 0 is null; drop the nulls or fill them$"):
        zkdilithium.PrivateKey.generate().sign_batch([None])


def test_malformed_rows(key: PrivateKey) -> None:
    public, raw = key.public_key(), key.public_key().to_raw()
    messages = [b"a", b"bc", b"d", b"e", b"f"]
    signatures: list[Any] = [key.sign(message) for message in messages]
    keys = [raw, raw[:-1], raw, None, raw]
    offsets = binary([0, 1, 3, 2, 5, 6], b"abcdef")
    with pytest.raises(ValueError, match="^public_keys: row 3 is null"):
        verify_batch(keys, signatures, messages, set=SET, malformed="null")
    signatures[4] = b""
    with pytest.raises(ValueError, match="row 1: its public key has another length"):
        verify_batch(keys, signatures, messages, set=SET, nulls="propagate")
    valid = verify_batch(keys, signatures, offsets, set=SET, nulls="propagate", malformed="null")
    # Of row 3, the message has other bytes.
    assert list(valid) == [True, None, None, None, False]
    assert valid.reasons() == [
        (1, "public_keys: its public key has another length than the set's"),
        (2, "messages: its offsets decrease, are negative or lie beyond the column's bytes; validate the array"),
        (3, "null"),
    ]
    for kind in ["list", "dictionary"]:
        column: Any = keys[:3]
        if kind == "dictionary":
            column = indexed([0, 1, 0], binary([0, 32, 63], raw + raw[:-1]))
        valid = verify_batch(column, signatures[:3], messages[:3], set=SET, malformed="null")
        assert list(valid) == [True, None, True] and valid.reasons()[0][1].startswith("public_keys: its public key has another length")
        if kind == "dictionary":
            column = indexed([0, 1, 0], binary([0, 32, 63], raw + raw[:-1]))
        with pytest.raises(ValueError, match="row 1: its public key has another length"):
            verify_batch(column, signatures[:3], messages[:3], set=SET)
    with pytest.raises(ValueError, match="^public_keys: row 0: its index is negative"):
        verify_batch(indexed([-1], binary([0, 32], raw)), signatures[:1], messages[:1], set=SET)
    # No row has the entry whose length is wrong.
    assert list(verify_batch(indexed([0], binary([0, 32, 63], raw + raw[:-1])), signatures[:1], messages[:1], set=SET)) == [True]
    # All rows.
    wide = np.zeros((2, 31), dtype=np.uint8)
    assert list(verify_batch(wide, signatures[:2], messages[:2], set=SET, malformed="null")) == [None, None]
    made = viewed([view(1, b"a"), view(-1), view(20, 0, 1)], [b"a" * 20])
    hashed = sha256_batch(made, malformed="null")
    assert list(hashed) == [*sums([b"a"]), None, None] and hashed.reasons()[1] == (2, hashed.reasons()[0][1])
    assert hashed.reasons()[0][1].startswith("messages: its view has a negative length")
    signed = key.sign_batch(binary([0, 1, 3, 2, 5], b"abcde"), malformed="null")
    assert [row is None for row in signed] == [False, False, True, False]
    assert public.is_valid(signed[0], b"a") and public.is_valid(signed[3], b"cde")


def test_keys_of_dictionaries(key: PrivateKey, other: PrivateKey) -> None:
    """Equal entries of several chunks are one key, and each row has its own."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    signers = [key, other, PrivateKey.generate(SET), PrivateKey.generate(SET)]
    raw = [one.public_key().to_raw() for one in signers]
    of = np.random.default_rng(3).integers(0, 4, 64)
    messages = [bytes([i]) for i in range(64)]
    signatures = [signers[at].sign(message) for at, message in zip(of, messages, strict=True)]
    column = pa.array([raw[at] for at in of])
    for keys in [
        column.dictionary_encode(),
        column.cast(pa.binary(32)).dictionary_encode(),
        pa.chunked_array([column[a : a + 9].dictionary_encode() for a in range(0, 64, 9)]),
        pa.DictionaryArray.from_arrays(pa.array(of, pa.uint8()), pa.array([*raw, b"not used"])),
        pa.DictionaryArray.from_arrays(pa.array(of, pa.uint8()), pa.array([*raw, b"not used"]).cast(pa.binary_view())),
    ]:
        assert list(verify_batch(keys, signatures, messages, set=SET)) == [True] * 64
        assert list(verify_batch(keys[5:60], signatures[5:60], messages[5:60], set=SET)) == [True] * 55
        swapped = [signatures[1], signatures[0], *signatures[2:]]
        assert list(verify_batch(keys, swapped, messages, set=SET)) == [False] * 2 + [True] * 62
    with pytest.raises(ValueError, match="public_keys: rows of 31 bytes; a public key of .* has 32"):
        verify_batch(pa.array([bytes(31)], pa.binary(31)).dictionary_encode(), signatures[:1], messages[:1], set=SET)


def test_results_are_arrow_arrays(key: PrivateKey) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    messages = [bytes([i]) for i in range(19)]
    signatures = key.sign_batch(messages)
    made = pa.array(signatures)
    made.validate(full=True)
    assert made.type == pa.binary(key.signature_size) and made.null_count == 0
    assert made.buffers()[1].address == np.asarray(signatures).ctypes.data
    assert made.to_pylist() == list(signatures)
    valid = verify_batch(key.public_key(), made, [*messages[:-1], b"other"])
    flags = pa.array(valid)
    flags.validate(full=True)
    assert flags.type == pa.bool_() and flags.to_pylist() == [True] * 18 + [False]
    assert pa.array(Engine().empty(7)).to_pylist() == [0] * 7
    empty = sha256_batch([])
    assert pa.array(empty).to_pylist() == [] and pa.array(verify_batch(key.public_key(), [], [])).to_pylist() == []
    assert pa.table({"signature": signatures, "valid": valid}).num_rows == 19
    # The array may go first.
    expected = list(signatures)
    del signatures, valid
    assert made.to_pylist() == expected and flags[18].as_py() is False
    nulls = pa.array(sha256_batch([None if i % 3 == 0 else b"a" for i in range(19)], nulls="propagate"))
    nulls.validate(full=True)
    assert nulls.null_count == 7 and [row is None for row in nulls.to_pylist()] == [i % 3 == 0 for i in range(19)]
    # What nobody takes is given back.
    sha256_batch([b"a"]).__arrow_c_array__()


def test_an_array_that_arrow_shares_does_not_change(key: PrivateKey) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    engine = Engine()
    for out in [engine.empty((2, 32)), sha256_batch([b"x", b"y"])]:
        sha256_batch([b"a", b"b"], out=out)
        before = out.tobytes()
        made = pa.array(out)
        with pytest.raises(BufferError, match="an Arrow array shares its memory, which must not change"):
            sha256_batch([b"c", b"d"], out=out)
        seen = np.asarray(out)
        assert not seen.flags.writeable and memoryview(out).readonly
        with pytest.raises(ValueError, match="read-only"):
            sha256_batch([b"c", b"d"], out=seen)
        with pytest.raises((BufferError, TypeError)):
            io.BytesIO(bytes(64)).readinto(out)
        with pytest.raises(BufferError, match="views are read-only"):
            out.__dlpack__()
        tensor = np.from_dlpack(out)
        assert not tensor.flags.writeable
        assert b"".join(made.to_pylist()) == before == out.tobytes()
        # It is still a column.
        assert list(sha256_batch(out)) == sums(list(out))
        del made, seen, tensor
        sha256_batch([b"c", b"d"], out=out)
        with memoryview(out) as view:
            assert not view.readonly
            # With a view that may be written to, Arrow has a copy.
            copied = pa.array(out)
            view.cast("B")[0] ^= 255
        assert b"".join(copied.to_pylist()) == b"".join(sums([b"c", b"d"])) != out.tobytes()
        del copied
        sha256_batch([b"a", b"b"], out=out)


def test_results_are_tensors(key: PrivateKey) -> None:
    hashed = sha256_batch([b"a", b"b", b"c"])
    tensor = np.from_dlpack(hashed)
    assert tensor.dtype == np.uint8 and tensor.shape == (3, 32) and np.shares_memory(tensor, np.asarray(hashed))
    assert [row.tobytes() for row in tensor] == sums([b"a", b"b", b"c"])
    flags = np.from_dlpack(verify_batch(key.public_key(), [key.sign(b"a"), b""], [b"a", b"a"]))
    assert flags.dtype == np.bool_ and flags.tolist() == [True, False]
    assert not np.shares_memory(np.from_dlpack(hashed, copy=True), tensor)
    assert hashed.__dlpack_device__() == (1, 0)
    assert '"dltensor_versioned"' in repr(hashed.__dlpack__(max_version=(1, 0))) and '"dltensor"' in repr(hashed.__dlpack__())
    for wrong in [{"stream": 1}, {"dl_device": (2, 0)}]:
        with pytest.raises(BufferError, match="the host's memory"):
            hashed.__dlpack__(**wrong)  # type: ignore[arg-type]
    # A tensor is a view: a call copies what it writes there.
    sha256_batch([b"x", b"y", b"z"], out=hashed)
    assert [row.tobytes() for row in tensor] == sums([b"x", b"y", b"z"])
    del hashed
    assert [row.tobytes() for row in tensor] == sums([b"x", b"y", b"z"])
    # One that nobody took does not count.
    array = sha256_batch([b"a"])
    capsule = array.__dlpack__(max_version=(1, 0))
    del capsule
    assert pytest.importorskip("pyarrow").array(array).buffers()[1].address == np.asarray(array).ctypes.data


EXPORTS = """
import numpy as np, pyarrow as pa
from hypergrove import sha256_batch
def size():
    return next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmRSS"))
def loop(times):
    for at in range(times):
        array = sha256_batch([bytes([at % 256])] * 30000 + [None] * 7, nulls="propagate")
        made, tensor = pa.array(array), np.from_dlpack(array)
        if at % 2:
            del array
        assert made[0].as_py() == tensor[0].tobytes()
        unused = (sha256_batch([b""] * 30000).__arrow_c_array__(), sha256_batch([b""] * 30000).__dlpack__(), made.__arrow_c_array__())
loop(20)
before = size()
loop(100)
print(size() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the size of memory is asked of Linux")
def test_exports_leave_nothing_behind() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    ran = subprocess.run([sys.executable, "-c", EXPORTS], capture_output=True, text=True, timeout=120, check=True)
    # One array has a megabyte.
    assert int(ran.stdout) < 20, ran.stdout


def test_exports_are_released_by_any_thread() -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    array = Engine().empty((1000, 32))

    def work(_: int) -> bool:
        made = pa.array(array)
        return bool(pa.compute.count(made).as_py() == 1000)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(400)))
    sha256_batch([b""] * 1000, out=array)


def test_polars(key: PrivateKey) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    messages = [b"a", None, b"a longer message, of more than twelve bytes", b"c"]
    series = pl.Series(messages, dtype=pl.Binary)
    hashed = sha256_batch(series, nulls="propagate")
    made = pl.Series(hashed)
    assert made.to_list() == list(hashed) == [None if row is None else hashlib.sha256(row).digest() for row in messages]
    signatures = pl.Series(key.sign_batch(series, nulls="propagate"))
    keys = pl.Series([key.public_key().to_raw()] * 4)
    valid = verify_batch(keys, signatures, series, set=SET, nulls="propagate")
    assert pl.Series(valid).to_list() == [True, None, True, True]
    joined = pl.concat([series[:2], series[2:]], rechunk=False)
    assert list(sha256_batch(joined, nulls="propagate")) == list(hashed)
    assert list(sha256_batch(pl.Series(["a", "b"]))) == sums([b"a", b"b"])
    assert list(sha256_batch(pl.Series(["a", "b", "a"], dtype=pl.Categorical))) == sums([b"a", b"b", b"a"])
    assert list(sha256_batch(series[2:])) == list(hashed)[2:]


def test_pandas(key: PrivateKey) -> None:
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    series = pd.Series([b"a", None, b"c"])
    expected = [*sums([b"a"]), None, *sums([b"c"])]
    assert list(sha256_batch(series, nulls="propagate")) == expected
    assert list(sha256_batch(series.to_numpy(), nulls="propagate")) == expected
    assert list(sha256_batch(pd.Series(["a", "b"]))) == sums([b"a", b"b"])


def test_series_of_pandas_have_one_index(key: PrivateKey) -> None:
    """pandas pairs rows by their labels, and a call pairs them by their places."""
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    public, messages = key.public_key(), [b"one", b"two", b"three"]
    raw = public.to_raw()
    frame = pd.DataFrame({"m": messages, "s": list(key.sign_batch(messages)), "k": [raw] * 3}, index=["a", "b", "c"])
    assert list(verify_batch(public, frame["s"], frame["m"])) == [True] * 3
    assert list(verify_batch(frame["k"], frame["s"], frame["m"], set=SET)) == [True] * 3
    turned = frame.sort_index(ascending=False)
    assert list(verify_batch(turned["k"], turned["s"], turned["m"], set=SET)) == [True] * 3
    # Lists and arrays have no labels; pandas pairs them by their places as well.
    assert list(verify_batch(public, turned["s"], messages[::-1])) == [True] * 3
    assert list(verify_batch(public, turned["s"].to_numpy(), frame["m"][::-1])) == [True] * 3
    for columns in (
        (public, frame["s"], turned["m"]),
        (public, frame["s"], frame["m"].reset_index(drop=True)),
        (public, frame["s"].head(2), frame["m"]),
        (turned["k"], frame["s"], frame["m"]),
        (turned["k"], list(frame["s"]), frame["m"]),
        (frame["k"], frame["s"], frame["m"].set_axis(["a", "b", "x"])),
    ):
        with pytest.raises(ValueError, match="and (signatures|messages): these series have different indices"):
            verify_batch(*columns, set=SET)
    # A result is compared by the place as well.
    assert (verify_batch(public, frame["s"], frame["m"]) == pd.Series([True, False, True])).tolist() == [True, False, True]


def test_duckdb(key: PrivateKey) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with duckdb.connect() as connection:
        connection.create_function("sums", lambda column: sha256_batch(column), ["BLOB"], "BLOB", type="arrow")
        rows = connection.sql("select sums(encode(x)) from (values ('a'), ('b'), ('a longer message')) of_all(x)").fetchall()
    assert [row[0] for row in rows] == sums([b"a", b"b", b"a longer message"])


def unread_columns() -> dict[str, tuple[Any, list[bytes]]]:
    """Columns whose types have no bytes of their rows, by the words for them; and the bytes that the error's advice makes."""
    import datetime

    import pyarrow as pa
    import pyarrow.compute as pc

    lists, day = [[1, 2], [3, 4]], datetime.datetime(2026, 1, 2)
    runs = pc.run_end_encode(pa.array([b"a", b"a", b"b"]))
    return {
        "an Arrow column of booleans": (pa.array([True, False]), [b"true", b"false"]),
        "an Arrow column of integers": (pa.array([1, -2]), [b"1", b"-2"]),
        "an Arrow column of integers; ": (pa.chunked_array([pa.array([7], pa.uint8())]), [b"7"]),
        "an Arrow column of floating-point numbers": (pa.array([1.5]), [b"1.5"]),
        "an Arrow column of decimal numbers": (pa.array([5], pa.decimal128(3)), [b"5"]),
        "an Arrow column of dates or times": (pa.array([day.date()]), [b"2026-01-02"]),
        "an Arrow column of dates or times; ": (pa.array([day], pa.timestamp("s")), [b"2026-01-02 00:00:00"]),
        "an Arrow column of lists": (pa.array([*lists, []]), [b"\1\2", b"\3\4", b""]),
        "an Arrow column of lists; ": (pa.array(lists, pa.large_list(pa.uint8())), [b"\1\2", b"\3\4"]),
        "an Arrow column of lists; if": (pa.array(lists, pa.list_view(pa.uint8())), [b"\1\2", b"\3\4"]),
        "an Arrow column of lists of one length": (pa.array(lists, pa.list_(pa.uint8(), 2))[1:], [b"\3\4"]),
        "an Arrow column of structs": (pa.array([{"a": b"x"}]), [b"x"]),
        "an Arrow column of run-end encoded values": (runs, [b"a", b"a", b"b"]),
        "an Arrow dictionary of integers": (pa.array([5, 5]).dictionary_encode(), [b"5", b"5"]),
    }


def test_the_advice_for_unread_columns_is_right() -> None:
    """The advice is run as it stands."""
    pa, pc = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.compute")
    pl = pytest.importorskip("polars")
    seen = set()
    for words, (column, expected) in unread_columns().items():
        with pytest.raises(TypeError, match=f"^messages: {words}") as why:
            sha256_batch(column)
        seen |= set(re.findall("`(.*?)`", str(why.value)))
        made = eval(re.findall("`(.*?)`", str(why.value))[0], {"pa": pa, "pc": pc, "column": column})
        assert list(sha256_batch(made)) == sums(expected), words
    with pytest.raises(TypeError, match="messages: an Arrow column of nulls alone; ") as why:
        sha256_batch(pa.nulls(2))
    column = eval(re.findall("`(.*?)`", str(why.value))[0], {"pa": pa, "pc": pc, "column": pa.nulls(2)})
    assert list(sha256_batch(column, nulls="propagate")) == [None, None]
    for column in [
        pa.array([[(b"k", b"v")]], pa.map_(pa.binary(), pa.binary())),
        pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([b"a"])]),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.DictionaryArray.from_arrays(pa.array([0]), pc.run_end_encode(pa.array([b"a"]))),
    ]:
        with pytest.raises(TypeError, match="of (maps|unions|intervals|run-end encoded values); nothing casts these to bytes"):
            sha256_batch(column)
        with pytest.raises((pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid)):
            pc.cast(column, pa.large_binary())
    for column, expected in [
        (pl.Series([1, 2]), [b"1", b"2"]),
        (pl.Series([[1, 2], []], dtype=pl.List(pl.UInt8)), [b"\1\2", b""]),
        (pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.UInt8, 2)), [b"\1\2", b"\3\4"]),
    ]:
        with pytest.raises(TypeError, match="in Polars `(.*?)`") as why:
            sha256_batch(column)
        seen |= set(re.findall("`(.*?)`", str(why.value)))
        made = eval(re.findall("in Polars `(.*?)`", str(why.value))[0], {"pl": pl, "column": column})
        assert list(sha256_batch(made)) == sums(expected)
    # No advice is left out.
    source = (Path(__file__).parents[1] / "src/foreign/arrow.rs").read_text("utf-8")
    told = set(re.findall("`((?:pa|pc|column)[.][^`]*)`", source.split("fn unread")[1].split("\n}\n")[0] + source.split("const AS_TEXT")[1][:300]))
    assert len(told) == 8 and told == seen | {"pc.cast(column, pa.large_binary())"}, told ^ seen


def test_objects_of_polars() -> None:
    """Polars exports the addresses of its objects, as rows of eight bytes."""
    pl = pytest.importorskip("polars")
    rows = [b"a", b"longer than eight bytes", None]
    series = pl.Series("m", rows, dtype=pl.Object)
    assert list(sha256_batch(series, nulls="propagate")) == [*sums([b"a", rows[1] or b""]), None]
    with pytest.raises(TypeError, match="messages: row 1: int is not bytes"):
        sha256_batch(pl.Series([b"a", 7], dtype=pl.Object))
