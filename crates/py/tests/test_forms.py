"""Forms of keys: each PEM file of vectors/pem/forms.tsv is read or refused as by every other reader."""

import re
from pathlib import Path

import pytest
from conftest import SET

from hypergrove import PrivateKey, PublicKey, zkdilithium


def forms(table: Path, pem: bytes, other: bytes) -> list[tuple[str, str, bytes]]:
    """Each form of a PEM file with one block: its name, `read` or a part of the error, and the file."""
    begin, *body, end = pem.decode().splitlines()
    parts = {
        "%B": begin,
        "%E": end,
        "%L": "\n".join(body),
        "%1": "".join(body),
        "%W": " \n".join(body),
        "%S": " ".join(body),
        "%C": "\r".join(body),
        "%D": "\r\n".join(body),
        "%N": "\\n".join(body),
        "%O": other.decode(),
        "\\n": "\n",
        "\\r": "\r",
        "\\t": "\t",
        "\\u": "\ufeff",
        "\\\\": "\\",
    }
    made = []
    for row in table.read_text().splitlines():
        if row.startswith("#"):
            continue
        name, expected, template = row.split("\t")
        text = re.sub(r"%.|\\.", lambda found: parts[found[0]], template)
        order = {"16LE": "utf-16-le", "16BE": "utf-16-be"}.get(name[-4:])
        made.append((name, expected, ("\ufeff" + text).encode(order) if order else text.encode()))
    assert len(made) > 30
    return made


def check(table: Path, pem: bytes, other: bytes, read, key) -> None:
    for name, expected, file in forms(table, pem, other):
        if expected == "read":
            assert read(file) == key, name
            continue
        with pytest.raises(ValueError) as raised:
            read(file)
        assert expected in str(raised.value), (name, str(raised.value))
        body = b"".join(pem.splitlines()[1:-1]).decode()
        assert not any(body[at : at + 8] in str(raised.value) for at in range(40, len(body) - 8)), name


def test_forms_of_pem(repository: Path, key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> None:
    table = repository / "vectors/pem/forms.tsv"
    public, zk_public = key.public_key(), zk_key.public_key()
    check(table, key.to_pem(), public.to_pem(), PrivateKey.from_pem, key)
    check(table, public.to_pem(), key.to_pem(), PublicKey.from_pem, public)
    check(table, zk_key.to_pem(), zk_public.to_pem(), zkdilithium.PrivateKey.from_pem, zk_key)
    check(table, zk_public.to_pem(), zk_key.to_pem(), zkdilithium.PublicKey.from_pem, zk_public)


def test_forms_of_encrypted_pem(repository: Path, key: PrivateKey) -> None:
    pem, public = key.to_pem(b"word"), key.public_key().to_pem()
    check(repository / "vectors/pem/forms.tsv", pem, public, lambda file: PrivateKey.from_pem(file, b"word"), key)
    with pytest.raises(ValueError, match="the key is encrypted; give its passphrase"):
        PrivateKey.from_pem(b"\xef\xbb\xbftext\n" + pem + b"text")


def test_an_empty_passphrase(repository: Path) -> None:
    """Others encrypt keys with it, so such a key is read; nobody writes one here."""
    pem = (repository / "vectors/slh-dsa/encrypted/empty-passphrase.pem").read_bytes()
    plain = PrivateKey.from_pem((repository / "vectors/slh-dsa/encrypted/key.pem").read_bytes())
    assert PrivateKey.from_pem(pem, b"") == plain
    with pytest.raises(ValueError, match="the passphrase is wrong"):
        PrivateKey.from_pem(pem, b"word")
    with pytest.raises(ValueError, match="not encrypted; leave passphrase out"):
        PrivateKey.from_pem(plain.to_pem(), b"")


def test_fields_of_der_are_named(key: PrivateKey) -> None:
    der, raw = key.to_der(), key.to_raw()
    head = der[: -len(raw) - 2]
    assert der[:5] == b"\x30\x52\x02\x01\x00"
    for wrong, text in [
        (der[:4] + b"\x02" + der[5:], "`version` is 2"),
        (b"\x30" + bytes([der[1] + 2]) + head[2:] + b"\x04\x42" + der[-66:], "`privateKey` holds the key within"),
        (b"\x30" + bytes([der[1] + 4]) + der[2:] + b"\xa0\x02\x05\x00", "`attributes` is no set"),
        (b"\x30\x54" + head[2:5] + b"\x30\x0d" + head[7:] + b"\x05\x00" + der[-66:], "`parameters`"),
    ]:
        with pytest.raises(ValueError, match=text):
            PrivateKey.from_der(wrong)


def test_parts_that_do_not_fit_together(key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> None:
    """The public key of such a key would verify nothing: no door hands it out."""
    for at in (0, 40, 63):
        raw = bytearray(key.to_raw())
        raw[at] ^= 1
        der = key.to_der()[: -len(raw)] + raw
        for read in (lambda: PrivateKey.from_raw(SET, raw), lambda: PrivateKey.from_der(der)):
            with pytest.raises(ValueError, match="the key is damaged"):
                read()
    for at in (0, 70, 3935):
        raw = bytearray(zk_key.to_raw())
        raw[at] ^= 1
        with pytest.raises(ValueError, match="damaged"):
            zkdilithium.PrivateKey.from_raw(raw)
