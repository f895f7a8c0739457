"""How programs use the package, for mypy and pyright in their strict modes; nothing runs this."""

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import hypergrove
from hypergrove import Array, Engine, PrivateKey, PrivateKeys, PublicKey, files, zkdilithium


class ArrowColumn:
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        raise NotImplementedError


class Tensor:
    def __dlpack__(self, *, stream: int | None = None) -> object:
        raise NotImplementedError


def calls(key: PrivateKey, column: ArrowColumn, array: npt.NDArray[np.uint8], engine: Engine, tensor: Tensor) -> None:
    assert_type(key.sign(b"m", memoryview(b"c"), prehash="SHA2-256", engine=engine), bytes)
    assert_type(key.sign_batch([b"m", b"n"]), Array)
    assert_type(key.sign_batch(column, context=b"c"), Array)
    assert_type(key.sign_batch(array, out=array), npt.NDArray[np.uint8])
    assert_type(key.sign_batch(tensor, out=tensor), Tensor)
    assert_type(key.sign_batch([b"m"], out=engine.empty((1, key.signature_size)), engine=engine), Array)
    assert_type(key.public_key().verify(b"", array[0].tobytes()), None)
    assert_type(key.public_key().is_valid(b"", b"m"), bool)
    assert_type(key.cache(memory=1 << 20, engine=engine).cache(layers=2).cached_layers, int)
    assert_type(key.cache_size(2), int)
    verdicts = hypergrove.verify_batch([key.public_key()], column, array)
    assert_type(verdicts[0], Any)
    assert_type((bool(verdicts), all(verdicts == [True])), tuple[bool, bool])
    assert_type((verdicts.all(), verdicts.any(), (~verdicts).tolist()), tuple[bool, bool, list[Any]])
    assert_type((verdicts[1:], verdicts.count(True)), tuple[Array, int])
    assert_type([bool(verdict) for verdict in verdicts], list[bool])
    assert_type(hypergrove.verify_batch(array, array, [b"m"], set=hypergrove.SETS[0]), Array)
    assert_type(hypergrove.sha256_batch(verdicts.tobytes() and [b"m"]), Array)
    nullable = hypergrove.sha256_batch([b"m", None], nulls="propagate", malformed="null")
    assert_type((nullable.null_count, nullable.reasons()), tuple[int, list[tuple[int, str]]])
    assert_type(hypergrove.sha256_batch(nullable), Array)
    np.from_dlpack(nullable)
    assert_type(hypergrove.keygen_batch("SLH-DSA-SHA2-128f", 3)[0], PrivateKeys)
    assert_type([one.public_key() for one in hypergrove.keygen_batch("SLH-DSA-SHA2-128f", 3)[0]], list[PublicKey])
    key.save(Path("k.pem"), "passphrase", overwrite=True)
    assert_type(PrivateKey.load("k.pem", b"passphrase").fingerprint, str)
    assert_type(PublicKey.load(Path("k.pub")), PublicKey)
    assert_type(PublicKey.from_pem("-----BEGIN PUBLIC KEY-----"), PublicKey)
    with open("m", "rb") as file, open("m", "rb", buffering=0) as unbuffered:
        assert_type(key.sign_file(file, b"c", prehash="SHA2-256", engine=engine), bytes)
        assert_type(key.public_key().verify_file(unbuffered, b"") and key.public_key().verify_file("m", b""), bool)
    key.sign_file(b"message")  # type: ignore[arg-type]  # pyright: ignore
    PrivateKey.load(b"k.pem")  # type: ignore[arg-type]  # pyright: ignore
    hypergrove.sha256_batch("text")  # type: ignore[arg-type]  # pyright: ignore
    key.sign("text")  # type: ignore[arg-type]  # pyright: ignore
    hash(verdicts)  # type: ignore[arg-type,unused-ignore]  # pyright: ignore
    hash(key)  # type: ignore[arg-type,unused-ignore]  # pyright: ignore


async def awaited(key: PrivateKey) -> None:
    assert_type(await key.sign_async(b"m", prehash="SHA2-256"), bytes)
    await key.public_key().verify_async(b"", b"m", prehash="SHA2-256")
    assert_type(await zkdilithium.PrivateKey.generate().sign_async(b"m"), bytes)
    assert_type(PrivateKey.from_pem(key.to_pem(b"passphrase"), b"passphrase"), PrivateKey)


def other_scheme(key: zkdilithium.PrivateKey, public: zkdilithium.PublicKey) -> None:
    assert_type(zkdilithium.verify_batch(public, key.sign_batch([b"m"]), [b"m"]), Array)
    hypergrove.verify_batch(public, [b""], [b"m"])  # type: ignore[arg-type]  # pyright: ignore


def formats(key: PrivateKey, folder: Path) -> None:
    envelope = files.sign_envelope(key, folder / "m", b"c", comment="text")
    assert_type(files.Envelope.parse(str(envelope)).verify(key.public_key(), b"m", b"c"), None)
    assert_type(files.Manifest.of_folder(folder, without=["SUMS"]).problems(folder), list[tuple[str, str]])
    assert_type(files.AllowedSigners.load(folder / "signers").verify(envelope, b"m", b"c"), str)
