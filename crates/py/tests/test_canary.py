"""A private key that stands in the wrong place is never shown: in any argument of the package, in a file, or on the command line."""

import json
import os
import pathlib
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from hypergrove import Engine, PrivateKey, PublicKey, keygen_batch, sha256_batch, verify_batch, zkdilithium
from hypergrove._engines import Key
from hypergrove.files import AllowedSigners, Envelope, Manifest, sign_envelope

LIST = json.loads((pathlib.Path(__file__).parents[3] / "vectors/canary/forms.json").read_text("utf-8"))
FORMS = {name: bytes.fromhex(digits) for name, digits in LIST["forms"].items()}
WINDOWS = {bytes.fromhex(digits)[i : i + 8] for digits in LIST["secrets"].values() for i in range(len(digits) // 2 - 7)}
# Surrogates stand for bytes that are no text, as they do in paths.
TEXTS = {name: form.decode("utf-8", "surrogateescape") for name, form in FORMS.items()}


def check(shown: bytes | str) -> None:
    """Fails if eight characters of the secret are shown."""
    shown = shown if isinstance(shown, bytes) else shown.encode("utf-8", "surrogateescape")
    found = [shown[i : i + 8] for i in range(len(shown) - 7) if shown[i : i + 8] in WINDOWS]
    assert not found, shown


def test_the_check_finds_a_secret() -> None:
    for form in FORMS.values():
        with pytest.raises(AssertionError):
            check(form)


KEY = PrivateKey.generate("SLH-DSA-SHA2-128f")
CALLS: dict[str, Callable[[str], Any]] = {
    "set": PrivateKey.generate,
    "set of from_raw": lambda text: PublicKey.from_raw(text, b""),
    "set of keygen_batch": lambda text: keygen_batch(text, 1),
    "set of verify_batch": lambda text: verify_batch([b"k"], [b"s"], [b"m"], set=text),
    "prehash": lambda text: PrivateKey.generate("SLH-DSA-SHA2-128f").sign(b"m", prehash=text),
    "nulls": lambda text: sha256_batch([b"m"], nulls=text),  # type: ignore[call-overload]
    "devices": lambda text: Engine(devices=text),
    "device of cpu": lambda text: Engine(devices="cpu:" + text),
    "tables": lambda text: Engine(tables=[text]),
    "messages": lambda text: sha256_batch(text),  # type: ignore[call-overload]
    "message of a batch": lambda text: sha256_batch([text]),  # type: ignore[call-overload]
    "PEM": lambda text: PrivateKey.from_pem(text.encode("utf-8", "surrogateescape")),
    "DER": lambda text: PrivateKey.from_der(text.encode("utf-8", "surrogateescape")),
    "public PEM": lambda text: PublicKey.from_pem(text.encode("utf-8", "surrogateescape")),
    "public DER": lambda text: PublicKey.from_der(text.encode("utf-8", "surrogateescape")),
    "zkDilithium": lambda text: zkdilithium.PrivateKey.from_pem(text.encode("utf-8", "surrogateescape")),
    "public zkDilithium": lambda text: zkdilithium.PublicKey.from_pem(text.encode("utf-8", "surrogateescape")),
    "PEM as text": PrivateKey.from_pem,
    "public PEM as text": PublicKey.from_pem,
    "zkDilithium as text": zkdilithium.PrivateKey.from_pem,
    "public zkDilithium as text": zkdilithium.PublicKey.from_pem,
    "passphrase": lambda text: PrivateKey.from_der(KEY.to_der(), text),
    "path of load": PrivateKey.load,
    "path of a public key": lambda text: PublicKey.load(pathlib.Path(text)),
    "file to sign": KEY.sign_file,
    "file to verify": lambda text: KEY.public_key().verify_file(text, b""),
    "envelope": Envelope.parse,
    "manifest": Manifest.parse,
    "folder": Manifest.of_folder,
    "list of signers": AllowedSigners.parse,
    "path of a list of signers": AllowedSigners.load,
    "message of an envelope": lambda text: sign_envelope(KEY, text),
    "key of an engine": lambda text: Key.of(text).get(),
    "path of a key": lambda text: Key.of(pathlib.Path(text)).get(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("form", TEXTS)
def test_no_argument_is_shown(call: str, form: str) -> None:
    try:
        check(repr(CALLS[call](TEXTS[form])))
    except (ValueError, TypeError, OSError) as why:
        # With the errors that it names as its causes and contexts, as logs have them.
        check("".join(traceback.format_exception_only(why)))
        check("".join(repr(cause) for cause in (why.__cause__, why.__context__) if cause is not None))


@pytest.mark.parametrize("form", TEXTS)
def test_a_key_in_place_of_its_path_is_refused_before_it_travels(form: str) -> None:
    if "\0" in TEXTS[form] or form in ("raw", "der"):
        pytest.skip("no text holds these bytes")
    with pytest.raises(ValueError, match=r"looks like a private key.*os\.environb"):
        Key.of(TEXTS[form])


def test_a_missing_file_is_named_as_far_as_it_exists(tmp_path: pathlib.Path) -> None:
    missing = tmp_path / "release-key.pem"
    key = Key.of(missing)
    assert key.__reduce__()[1] == (missing,) and pickle.loads(pickle.dumps(key))
    with pytest.raises(FileNotFoundError, match=r"15 characters, not shown") as why:
        key.get()
    assert str(tmp_path) in str(why.value) and "release-key" not in str(why.value)


@pytest.mark.parametrize("form", TEXTS)
def test_no_file_is_named_as_a_key(form: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for key in (KEY, KEY.public_key()):
        with pytest.raises((ValueError, OSError)) as why:
            key.save(TEXTS[form])
        check(repr(why.value))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", TEXTS)
def test_no_file_of_a_key_is_shown(form: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "k.pem"
    path.write_bytes(FORMS[form])
    try:
        check(repr(Key.of(path).get()))
    except ValueError as why:
        check(str(why))
    for load in (PrivateKey.load, PublicKey.load, zkdilithium.PrivateKey.load, zkdilithium.PublicKey.load):
        try:
            check(repr(load(path)))
        except ValueError as why:
            check(str(why))
    try:
        check(repr(Engine(tables=[path], devices="cpu")))
    except OSError as why:
        check(str(why))


@pytest.mark.parametrize("form", TEXTS)
def test_no_column_of_a_table_is_shown(form: str) -> None:
    arrow, tables = pytest.importorskip("pyarrow"), pytest.importorskip("hypergrove.arrow")
    text = FORMS[form].decode("latin-1")
    named = arrow.table({text: [b"m"], "message": [b"m"]})
    for call in (
        lambda: tables.sha256(named, message=text + "x"),
        lambda: tables.sha256(named, output=text),
        lambda: tables.sign(named, key=text),
        lambda: tables.verify(named),
    ):
        with pytest.raises((ValueError, OSError)) as why:
            call()
        check(str(why.value))


@pytest.mark.parametrize("form", TEXTS)
def test_no_variable_of_a_frame_is_shown(form: str) -> None:
    """Some loggers show the variables of each frame of a traceback, as `capture_locals` does."""
    arrow, tables = pytest.importorskip("pyarrow"), pytest.importorskip("hypergrove.arrow")
    polars, expressions = pytest.importorskip("polars"), pytest.importorskip("hypergrove.polars")
    named, frame = arrow.table({"signature": [b"s"], "message": [b"m"]}), polars.DataFrame({"signature": [b"s"], "message": [b"m"]})
    for call in (
        lambda: tables.sign(named, key=TEXTS[form]),
        lambda: tables.sign(named, key=lambda: PrivateKey.from_pem(FORMS[form] + b"!"), message="signature"),
        lambda: tables.verify(named, public_key=TEXTS[form]),
        lambda: tables.verify(named, public_key="message", set=TEXTS[form]),
        lambda: tables.sha256(named, message=TEXTS[form]),
        lambda: frame.select(expressions.sign(key=TEXTS[form])),
        lambda: frame.select(expressions.verify(public_key="message", set=TEXTS[form])),
    ):
        with pytest.raises((ValueError, OSError, TypeError)) as why:
            call()
        check("".join(traceback.TracebackException.from_exception(why.value, capture_locals=True).format()))


def test_no_key_is_taken_for_the_name_of_a_column() -> None:
    arrow, tables = pytest.importorskip("pyarrow"), pytest.importorskip("hypergrove.arrow")
    polars, expressions = pytest.importorskip("polars"), pytest.importorskip("hypergrove.polars")
    named, frame = arrow.table({"message": [b"m"]}), polars.DataFrame({"message": [b"m"]})
    for text in (text for name, text in TEXTS.items() if name not in ("raw", "der")):
        for call in (
            lambda: tables.sha256(named, output=text),  # noqa: B023
            lambda: frame.select(expressions.sha256(text)),  # noqa: B023
            lambda: frame.select(expressions.verify("message", "message", text)),  # noqa: B023
        ):
            with pytest.raises(ValueError, match=r"looks like a private key, not like the name of a column") as why:
                call()
            check(str(why.value))
        with pytest.raises(TypeError, match=r"public_key: bytes; give the name of a column") as why:
            frame.select(expressions.verify("message", "message", text.encode("utf-8", "surrogateescape")))
        check(str(why.value))


def test_no_argument_of_the_command_is_shown() -> None:
    texts = [text for text in TEXTS.values() if "\0" not in text]
    for text in texts if os.environ.get("HYPERGROVE_TESTS") == "all" else texts[:4]:
        for arguments in ([text], ["quickstart", text], ["quickstart", "--set", text], ["quickstart", "--rows=" + text], ["--" + text]):
            command = [sys.executable, "-m", "hypergrove", *arguments]
            run = subprocess.run(command, capture_output=True, check=False)
            assert run.returncode != 0
            check(run.stdout + run.stderr)
