"""Keys: made, read, written, compared, and never shown."""

import copy
import pathlib
import pickle

import pytest
from conftest import SET

import hypergrove
from hypergrove import Engine, InvalidSignature, PrivateKey, PublicKey, zkdilithium


def test_sets_of_a_draft_are_refused() -> None:
    name = "SLH-DSA-SHA2-128-24"
    assert name not in hypergrove.SETS
    with pytest.raises(ValueError, match="set of a draft, whose keys may make 16777216 signatures"):
        PrivateKey.generate(name)


@pytest.mark.parametrize("name", [name for name in hypergrove.SETS if name.endswith("f")])
def test_a_key_of_each_fast_set_signs(name: str) -> None:
    key = PrivateKey.generate(name)
    public = key.public_key()
    signature = key.sign(b"message", b"context")
    assert (key.set, public.set) == (name, name)
    assert len(signature) == key.signature_size == public.signature_size
    public.verify(signature, b"message", b"context")
    for data, context in [(b"massage", b"context"), (b"message", b"contexts"), (b"message", None)]:
        assert not public.is_valid(signature, data, context)
        with pytest.raises(InvalidSignature, match=name):
            public.verify(signature, data, context)


def test_signatures_are_hedged_unless_asked(key: PrivateKey) -> None:
    assert key.sign(b"m") != key.sign(b"m")
    same = key.sign(b"m", deterministic=True)
    assert same == key.sign(b"m", deterministic=True)
    assert key.public_key().is_valid(same, b"m")


def test_cached_layers(key: PrivateKey) -> None:
    """The nodes of SLH-DSA-SHA2-128f: 22 layers of trees with 8 leaves."""
    assert [key.cache_size(layers) for layers in (0, 1, 2)] == [0, 15 * 16, 9 * 15 * 16]
    one, two = key.cache(), key.cache(layers=2, engine=Engine(threads=1))
    assert [cached.cached_layers for cached in (key, one, two, two.cache(layers=0))] == [0, 1, 2, 0]
    assert [key.cache(memory=size).cached_layers for size in (0, 239, 240, 9 * 240 - 1, 9 * 240)] == [0, 0, 1, 1, 2]
    expected = key.sign(b"m", deterministic=True)
    for cached in (one, two):
        assert cached == key and cached.to_raw() == key.to_raw()
        assert cached.sign(b"m", deterministic=True) == expected
        assert list(cached.sign_batch([b"m"] * 3, deterministic=True)) == [expected] * 3
        assert PrivateKey.from_pem(cached.to_pem()).cached_layers == 0
    assert not hasattr(zkdilithium.PrivateKey, "cache")
    for options, error, text in [
        ({"layers": 1, "memory": 240}, ValueError, "layers and memory: they are 1 and 240; give one of them"),
        ({"layers": 23}, ValueError, "23 cached layers of SLH-DSA-SHA2-128f, of which at most 11 can be cached"),
        ({"layers": -1}, OverflowError, "negative"),
        ({"layers": "1"}, TypeError, "layers"),
    ]:
        with pytest.raises(error, match=text):
            key.cache(**options)
    for size in (4 << 40, 1 << 63, 2**64 - 1):
        with pytest.raises(MemoryError):
            key.cache(memory=size)
    with pytest.raises(ValueError, match="layers: 23, and SLH-DSA-SHA2-128f has 22; give fewer"):
        key.cache_size(23)
    with pytest.raises(ValueError, match="more than memory can have"):
        key.cache_size(22)
    raw = bytearray(key.to_raw())
    raw[-1] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        PrivateKey.from_raw(SET, raw)


def test_prehash(key: PrivateKey) -> None:
    public = key.public_key()
    for name in ["SHA2-256", "sha512", "SHAKE128"]:
        signature = key.sign(b"m", b"c", prehash=name)
        assert public.is_valid(signature, b"m", b"c", prehash=name)
        assert not public.is_valid(signature, b"m", b"c")
    with pytest.raises(ValueError, match="md5"):
        key.sign(b"m", prehash="md5")


def test_a_signature_of_another_length_is_not_valid(key: PrivateKey) -> None:
    public, signature = key.public_key(), key.sign(b"m")
    for wrong in [b"", signature[:-1], signature + b"\0"]:
        assert not public.is_valid(wrong, b"m")
        with pytest.raises(InvalidSignature):
            public.verify(wrong, b"m")


def test_keys_are_written_and_read(key: PrivateKey, other: PrivateKey) -> None:
    public = key.public_key()
    for read in [
        PrivateKey.from_pem(key.to_pem()),
        PrivateKey.from_der(key.to_der()),
        PrivateKey.from_raw(SET, key.to_raw()),
        PrivateKey.from_raw(SET, bytearray(key.to_raw())),
    ]:
        assert read == key and read != other
        assert read.public_key() == public
    for read in [
        PublicKey.from_pem(public.to_pem()),
        PublicKey.from_der(public.to_der()),
        PublicKey.from_raw(SET, memoryview(public.to_raw())),
        pickle.loads(pickle.dumps(public)),
        copy.deepcopy(public),
    ]:
        assert read == public and hash(read) == hash(public)
        assert read != other.public_key()
    assert len({public, PublicKey.from_pem(public.to_pem()), other.public_key()}) == 2
    assert key.to_pem().startswith(b"-----BEGIN PRIVATE KEY-----\n")
    assert public.to_pem().startswith(b"-----BEGIN PUBLIC KEY-----\n")
    # Text before a key is allowed in PEM.
    assert PublicKey.from_pem(b"0 is a digit\n" + public.to_pem()) == public


def test_keys_under_a_passphrase(key: PrivateKey) -> None:
    pem, der = key.to_pem(b"correct horse"), key.to_der(bytearray(b"correct horse"))
    assert pem.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    assert PrivateKey.from_pem(pem, b"correct horse") == PrivateKey.from_der(der, b"correct horse") == key
    assert key.to_pem(b"correct horse") != pem
    for call, text in [
        (lambda: PrivateKey.from_pem(pem), "the key is encrypted; give its passphrase"),
        (lambda: PrivateKey.from_der(der), "the key is encrypted; give its passphrase"),
        (lambda: PrivateKey.from_pem(pem, b"correct house"), "the passphrase is wrong"),
        (lambda: PrivateKey.from_pem(key.to_pem(), b"correct horse"), "not encrypted; leave passphrase out"),
        (lambda: PrivateKey.from_der(pem, b"correct horse"), "from_pem"),
        (lambda: PrivateKey.from_pem(pem, b""), "the passphrase is wrong"),
        (lambda: key.to_pem(b""), "an empty passphrase"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()
    with pytest.raises(TypeError, match="passphrase: int"):
        key.to_pem(7)


def test_text_of_keys_and_passphrases(key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> None:
    public, zk_public = key.public_key(), zk_key.public_key()
    for one in (key, public, zk_key, zk_public):
        assert type(one).from_pem(one.to_pem().decode()) == one
    word = "größe 🌲"
    for pem in (key.to_pem(word), key.to_pem(word.encode())):
        assert PrivateKey.from_pem(pem.decode(), word) == PrivateKey.from_pem(pem, word.encode()) == key
    assert PrivateKey.from_der(key.to_der(word), word) == key
    for call, error, text in [
        (lambda: key.to_pem(""), ValueError, "an empty passphrase"),
        (lambda: PrivateKey.from_pem(key.to_pem(word), "größe"), ValueError, "the passphrase is wrong"),
        (lambda: key.to_pem("a\ud800b"), ValueError, "passphrase: a str with characters that UTF-8 does not have; give bytes"),
        (lambda: PrivateKey.from_der(key.to_pem().decode()), TypeError, "data: str"),
    ]:
        with pytest.raises(error, match=text):
            call()
    for kind in (PrivateKey, PublicKey, zkdilithium.PrivateKey, zkdilithium.PublicKey):
        for data, error, text in [
            ("/etc/hypergrove/release.pem", ValueError, "no line '-----BEGIN …', so it is no PEM; load reads"),
            ("-----BEGIN PUBLIC KEY\ud800", ValueError, "characters that UTF-8 does not have"),
            (pathlib.Path("release.pem"), TypeError, "PosixPath is the path of a file; load reads it"),
            (7, TypeError, "data: int"),
        ]:
            with pytest.raises(error, match=text) as why:
                kind.from_pem(data)
            assert "release" not in repr(why.value)


def test_private_keys_stay_where_they_are(key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> None:
    keys, _ = hypergrove.keygen_batch(SET, 1)
    zk_keys, _ = zkdilithium.keygen_batch(1)
    for secret in [key, keys, zk_key, zk_keys]:
        with pytest.raises(TypeError, match="do not pickle"):
            pickle.dumps(secret)
        with pytest.raises(TypeError, match="do not pickle"):
            copy.copy(secret)
        with pytest.raises(TypeError):
            memoryview(secret)
        shown = repr(secret) + str(secret)
        raw = key.to_raw() if isinstance(secret, PrivateKey) else b""
        assert "PrivateKey" in shown and len(shown) < 120
        assert not raw or raw[:4].hex() not in shown
    for secret in [key, zk_key]:
        with pytest.raises(TypeError, match="unhashable"):
            hash(secret)
        with pytest.raises(TypeError):
            secret < secret


def test_classes_are_made_by_their_methods_alone() -> None:
    for made in [PrivateKey, PublicKey, hypergrove.PrivateKeys, hypergrove.Array]:
        with pytest.raises(TypeError):
            made()
        with pytest.raises(TypeError):
            type("Derived", (made,), {})


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda key: PrivateKey.generate("SLH-DSA-SHA2-128x"), ValueError, "SLH-DSA-SHA2-128"),
        (lambda key: PrivateKey.generate(None), TypeError, "set"),
        (lambda key: PrivateKey.from_raw(SET, b"short"), ValueError, "64"),
        (lambda key: PrivateKey.from_raw(SET, None), TypeError, "data: NoneType"),
        (lambda key: PrivateKey.from_raw(SET, "text"), TypeError, "data: str"),
        (lambda key: PrivateKey.from_pem(b""), ValueError, "PKCS#8"),
        (lambda key: PrivateKey.from_pem(key.to_der()), ValueError, "from_der"),
        (lambda key: PrivateKey.from_der(key.to_pem()), ValueError, "from_pem"),
        (lambda key: PrivateKey.from_pem(key.public_key().to_pem()), ValueError, "holds a public key"),
        (lambda key: PrivateKey.from_der(key.to_der() + b"\0"), ValueError, "no DER"),
        (lambda key: PublicKey.from_pem(key.to_pem()), ValueError, "holds a private key"),
        (lambda key: PublicKey.from_der(b"\x30\x00"), ValueError, "SPKI"),
        (lambda key: PublicKey.from_raw("SLH-DSA-SHA2-256f", key.public_key().to_raw()), ValueError, "64"),
        (lambda key: key.sign(None), TypeError, "data: NoneType"),
        (lambda key: key.sign("text"), TypeError, "data: str"),
        (lambda key: key.sign(b"m", "text"), TypeError, "context: str"),
        (lambda key: key.sign(b"m", bytes(256)), ValueError, "256"),
        (lambda key: key.sign(b"m", memoryview(bytes(8))[::2]), ValueError, "not contiguous"),
        (lambda key: key.public_key().verify(b"", b"m", bytes(256)), ValueError, "256"),
        (lambda key: key.public_key().verify(None, b"m"), TypeError, "signature: NoneType"),
        (lambda key: key.public_key().is_valid(b"", [1, 2]), TypeError, "data: list"),
    ],
)
def test_bad_input(key: PrivateKey, call, error, text: str) -> None:
    with pytest.raises(error, match=text):
        call(key)


def test_zkdilithium(zk_key: zkdilithium.PrivateKey) -> None:
    public = zk_key.public_key()
    signature = zk_key.sign(b"m")
    assert signature == zk_key.sign(bytearray(b"m")) and len(signature) == zkdilithium.SIGNATURE_SIZE
    public.verify(signature, b"m")
    assert not public.is_valid(signature, b"n")
    assert not public.is_valid(signature[:-1], b"m")
    with pytest.raises(InvalidSignature):
        public.verify(signature, b"n")
    assert zkdilithium.PrivateKey.from_pem(zk_key.to_pem()) == zk_key
    assert zkdilithium.PrivateKey.from_raw(zk_key.to_raw()) == zk_key != zkdilithium.PrivateKey.generate()
    for read in [
        zkdilithium.PublicKey.from_pem(public.to_pem()),
        zkdilithium.PublicKey.from_raw(public.to_raw()),
        pickle.loads(pickle.dumps(public)),
    ]:
        assert read == public and hash(read) == hash(public)
    assert len(public.to_raw()) == zkdilithium.PUBLIC_KEY_SIZE
    for wrong in [b"", zk_key.to_raw()[:-1]]:
        with pytest.raises(ValueError):
            zkdilithium.PrivateKey.from_raw(wrong)
