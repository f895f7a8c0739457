"""Envelopes, manifests and lists of signers."""

import base64
import errno
import pathlib
import pickle
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from hypergrove import InvalidSignature, PrivateKey, PublicKey
from hypergrove.files import AllowedSigners, Envelope, Manifest, sign_envelope


def word(public: PublicKey) -> str:
    return base64.b64encode(public.to_der()).decode()


def test_envelopes(key: PrivateKey, other: PrivateKey, tmp_path: pathlib.Path) -> None:
    public, path = key.public_key(), tmp_path / "letter"
    path.write_bytes(b"Dear reader")
    for data in (b"Dear reader", bytearray(b"Dear reader"), path, str(path)):
        for prehash in (None, "SHA2-256"):
            made = sign_envelope(key, data, b"letters", prehash=prehash, comment="to the reader")
            envelope = Envelope.parse(str(made))
            assert envelope == made == Envelope.parse(str(made).encode().replace(b"\n", b"\r\n"))
            assert (envelope.set, envelope.prehash, envelope.context, envelope.comment) == (key.set, prehash, b"letters", "to the reader")
            assert envelope.fingerprint == key.fingerprint
            for same in (b"Dear reader", path):
                assert envelope.verify(public, same, b"letters") is None
    with open(path, "rb") as file:
        envelope.verify(public, file, b"letters")
    for call, text in [
        (lambda: envelope.verify(other.public_key(), path, b"letters"), f"wrong key: the envelope is of the key {key.fingerprint}"),
        (lambda: envelope.verify(public, path), "wrong context: the envelope's is 'letters'"),
        (lambda: envelope.verify(public, b"Dear writer", b"letters"), "changed content"),
        (lambda: Envelope.parse(str(envelope).replace("the reader", "the writer")).verify(public, path, b"letters"), "changed content"),
    ]:
        with pytest.raises(InvalidSignature, match=re.escape(text)):
            call()
    assert sign_envelope(key, b"", deterministic=True) == sign_envelope(key, b"", deterministic=True) != sign_envelope(key, b"")
    assert sign_envelope(key, b"m").comment is None
    for call, text in [
        (lambda: Envelope.parse("text"), "line 1: an envelope begins with"),
        (lambda: Envelope.parse(str(envelope)[:-40]), "cut short"),
        (lambda: sign_envelope(key, b"m", comment="two\nlines"), "a comment is one line"),
        (lambda: sign_envelope(key, b"m", bytes(256)), "256"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(FileNotFoundError):
        sign_envelope(key, tmp_path / "nothing")


def test_manifests(tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/tool").write_bytes(b"tool")
    (tree / "ä").write_bytes(b"")
    (tree / "SUMS").write_bytes(b"")
    made = Manifest.of_folder(tree, without=["SUMS"])
    assert made.to_bytes().splitlines()[0].endswith(b"  bin/tool") and len(made) == 2
    assert [path for path, _ in made.entries()] == ["bin/tool", "ä"]
    manifest = Manifest.parse(made.to_bytes())
    assert manifest == made == Manifest.parse(made.to_bytes().decode()) == Manifest.of_folder(str(tree), without=[pathlib.Path("SUMS")])
    assert manifest.problems(tree, without=["SUMS"]) == []
    assert manifest.problems(tree) == [("SUMS", "it is not listed")]
    (tree / "bin/tool").write_bytes(b"fool")
    (tree / "ä").unlink()
    (changed, gone) = manifest.problems(tree, without=["SUMS"])
    assert changed == ("bin/tool", "it was changed") and gone[0] == "ä" and "No such file" in gone[1]
    for call, text in [
        (lambda: Manifest.parse(b""), "there are no files"),
        (lambda: Manifest.parse("0" * 64 + "  ../up\n"), "line 1: "),
        (lambda: Manifest.of_folder(tree / "bin", without=["tool"]), "there are no files"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()
    for call in (Manifest.of_folder, manifest.problems):
        with pytest.raises(FileNotFoundError) as why:
            call(tmp_path / "nothing")
        assert why.value.errno == errno.ENOENT and why.value.filename.startswith(str(tmp_path))


def test_allowed_signers(key: PrivateKey, other: PrivateKey, tmp_path: pathlib.Path) -> None:
    now, path = datetime.now(UTC), tmp_path / "signers"
    text = (
        f"# who may sign\nalice valid-after=2026-01-01 valid-before=2027-01-01 namespace=release {word(key.public_key())}\n"
        f"bob@example.org {word(other.public_key())}\n"
    )
    path.write_text(text)
    signers = AllowedSigners.load(path)
    assert signers == AllowedSigners.parse(text) == AllowedSigners.parse(text.encode()) and len(signers) == 2
    summer = datetime(2026, 7, 1, tzinfo=timezone(timedelta(hours=2)))
    assert signers.check(b"release", at=summer) == [("alice", key.public_key(), None), ("bob@example.org", other.public_key(), None)]
    for context, at, why in [
        (b"release", datetime(2025, 12, 31, tzinfo=UTC), "the key is valid only from 2026-01-01 on"),
        (b"release", datetime(2027, 1, 1, tzinfo=UTC), "the key was valid only before 2027-01-01"),
        (None, summer, "the key is only for the context 'release'"),
    ]:
        assert [one[2] for one in signers.check(context, at=at)] == [why, None]
    assert [name for name, _, why in signers.check()] == ["alice", "bob@example.org"] and now < datetime.now(UTC)
    message = tmp_path / "message"
    message.write_bytes(b"m")
    signature, envelope = key.sign(b"m", b"release"), sign_envelope(key, b"m", b"release")
    for one in (signature, envelope):
        for data in (b"m", message):
            assert signers.verify(one, data, b"release", at=summer) == "alice"
        for wrong in [
            {"data": b"n", "context": b"release", "at": summer},
            {"data": b"m", "context": None, "at": summer},
            {"data": b"m", "context": b"release", "at": datetime(2027, 1, 1, tzinfo=UTC)},
        ]:
            with pytest.raises(InvalidSignature, match="of none of the signers who may sign with this context at this time"):
                signers.verify(one, **wrong)
    hashed = other.sign(b"m", prehash="SHA2-256")
    assert signers.verify(hashed, b"m", prehash="SHA2-256") == signers.verify(sign_envelope(other, b"m", prehash="SHA2-256"), b"m") == "bob@example.org"
    for call, error, text in [
        (lambda: signers.verify(hashed, b"m"), InvalidSignature, "of none"),
        (lambda: signers.verify(b"short", b"m"), InvalidSignature, "of none"),
        (lambda: signers.verify(envelope, b"m", prehash="SHA2-256"), ValueError, "an envelope names its own"),
        (lambda: signers.check(at=datetime(2026, 1, 1)), TypeError, "offset-naive"),
        (lambda: AllowedSigners.parse("alice\n"), ValueError, "line 1: "),
        (lambda: AllowedSigners.load(tmp_path / "nothing"), FileNotFoundError, "nothing"),
        (lambda: pickle.dumps(signers), TypeError, "pickle"),
    ]:
        with pytest.raises(error, match=text):
            call()
    path.write_text("")
    with pytest.raises(ValueError, match=f"^{path}: it has no signers"):
        AllowedSigners.load(path)
