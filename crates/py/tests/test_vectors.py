"""Other implementations' keys and signatures: NIST's ACVP cases, our negative corpus, zkDilithium's known answers."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from hypergrove import PrivateKey, PublicKey, verify_batch, zkdilithium


def cases(path: Path) -> Iterator[dict[str, bytes]]:
    """As vectors/slh-dsa/acvp/README.md describes them."""
    data, at, strings = path.read_bytes(), 0, list[bytes]()
    while at < len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        strings.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    columns = strings[0].decode().split(" ")
    for i in range(1, len(strings), len(columns)):
        yield dict(zip(columns, strings[i : i + len(columns)], strict=True))


def test_nists_verifications(repository: Path) -> None:
    checked = 0
    groups: dict[tuple[str, str | None, bytes], list[dict[str, bytes]]] = {}
    for case in cases(repository / "vectors/slh-dsa/acvp/sigver.bin"):
        if case["interface"] == b"internal":
            continue
        name, prehash = case["parameterSet"].decode(), case["hashAlg"].decode() or None
        key = PublicKey.from_raw(name, case["pk"])
        expected = case["testPassed"] == b"true"
        arguments = (case["signature"], case["message"], case["context"])
        assert key.is_valid(*arguments, prehash=prehash) == expected, case["tcId"]
        groups.setdefault((name, prehash, case["context"]), []).append(case)
        checked += 1
    for (name, prehash, context), group in groups.items():
        columns = [[case[column] for case in group] for column in ("pk", "signature", "message")]
        verdicts = verify_batch(columns[0], columns[1], columns[2], set=name, prehash=prehash, context=context)
        assert list(verdicts) == [case["testPassed"] == b"true" for case in group]
    assert checked == 336


def test_nists_deterministic_signatures(repository: Path) -> None:
    checked = 0
    for case in cases(repository / "vectors/slh-dsa/acvp/siggen.bin"):
        name = case["parameterSet"].decode()
        if case["interface"] == b"internal" or case["additionalRandomness"] or not name.endswith("f"):
            continue
        key = PrivateKey.from_raw(name, case["sk"])
        prehash = case["hashAlg"].decode() or None
        signature = key.sign(case["message"], case["context"], prehash=prehash, deterministic=True)
        assert hashlib.sha256(signature).digest() == case["signatureSha256"], case["tcId"]
        checked += 1
    assert checked >= 100


def test_the_negative_corpus_of_keys(repository: Path) -> None:
    corpus = json.loads((repository / "vectors/slh-dsa/negative/keys.json").read_text())
    valid = 0
    for case in corpus["tests"]:
        read = PublicKey.from_der if case["kind"] == "spki" else PrivateKey.from_der
        try:
            read(bytes.fromhex(case["der"]))
            is_valid = True
        except ValueError as why:
            # The corpus has encodings of made-up private keys, whose PK.root does not belong to the seeds.
            is_valid = case["result"] == "valid" and case["kind"] == "pkcs8" and "the key is damaged" in str(why)
        assert is_valid == (case["result"] == "valid"), case["tcId"]
        valid += is_valid
    assert valid == 36


def test_zkdilithiums_known_answers(repository: Path) -> None:
    known = json.loads((repository / "vectors/zkdilithium/e2e_public.json").read_text())["cases"]
    for case in known:
        public = zkdilithium.PublicKey.from_raw(bytes.fromhex(case["pk"]))
        assert public.is_valid(bytes.fromhex(case["sig"]), bytes.fromhex(case["msg"])), case["id"]
    columns = [[bytes.fromhex(case[name]) for case in known] for name in ("pk", "sig", "msg")]
    assert list(zkdilithium.verify_batch(columns[0], columns[1], columns[2])) == [True] * len(known)
