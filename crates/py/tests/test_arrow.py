"""Columns of Arrow: those of pyarrow, and hostile ones that it would not make."""

import hashlib
import struct
from typing import Any

import pytest
from arrow_exporter import Exporter, StreamExporter
from conftest import SET
from hypothesis import given, settings
from hypothesis import strategies as st

from hypergrove import PrivateKey, sha256_batch, verify_batch


def sums(rows: list[bytes]) -> list[bytes]:
    return [hashlib.sha256(row).digest() for row in rows]


def binary(offsets: list[int], data: bytes, code: str = "i", **fields: Any) -> Exporter:
    """Binary, or LargeBinary with the code "q"."""
    fields = {"length": len(offsets) - 1} | fields
    return Exporter({"i": b"z", "q": b"Z"}[code], [None, struct.pack(f"{len(offsets)}{code}", *offsets), data], **fields)


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
    with pytest.raises(ValueError, match="row 2: its offsets"):
        sha256_batch(StreamExporter([binary([0, 1, 2], b"ab"), binary([0, 2, 1], b"ab")]))


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
        (lambda: Exporter(b"u", [None, struct.pack("2i", 0, 3), b"abc"], length=1), TypeError, 'format "u"; cast'),
        (lambda: Exporter(b"vz", [None, bytes(16), b""], length=1), TypeError, 'format "vz"; cast'),
        (lambda: Exporter(b"w:-1", [None, b""], length=1), TypeError, 'format "w:-1"'),
        (lambda: Exporter(b"w:99999999999999999999", [None, b""], length=1), TypeError, 'format "w:9'),
        (lambda: Exporter(b"", [None, b""], length=1), TypeError, 'format ""'),
        (lambda: Exporter(b"z", [None, b"", b""], dictionary=1), TypeError, "a dictionary"),
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
    for wrong in [pa.array([1, 2]), pa.array(["a"]), pa.array([b"a"]).dictionary_encode(), pa.table({"a": messages})]:
        with pytest.raises(TypeError, match="cast"):
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
