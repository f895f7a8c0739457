"""Files of keys and of messages."""

import base64
import errno
import hashlib
import os
import pathlib
import pickle
import signal
import stat
import subprocess
import sys
import threading
from typing import Any

import pytest

from hypergrove import PrivateKey, PublicKey, zkdilithium


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def pairs(key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> list[tuple[Any, Any]]:
    return [(key, key.public_key()), (zk_key, zk_key.public_key())]


def test_keys_are_saved_and_loaded(pairs: list[tuple[Any, Any]], tmp_path: pathlib.Path) -> None:
    before = os.umask(0o027)
    try:
        for number, (private, public) in enumerate(pairs):
            one, two = tmp_path / f"{number}.key", tmp_path / f"{number}.pub"
            assert private.save(one) is None and public.save(str(two)) is None
            assert (mode(one), mode(two)) == (0o600, 0o640)
            assert (one.read_bytes(), two.read_bytes()) == (private.to_pem(), public.to_pem())
            assert type(private).load(str(one)) == private and type(public).load(two) == public
            assert type(public).load(os.fsencode(two).decode()) == public
    finally:
        os.umask(before)
    assert names(tmp_path) == ["0.key", "0.pub", "1.key", "1.pub"]


def test_keys_are_loaded_from_der_and_under_a_passphrase(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "k"
    key.save(path, "größe")
    assert path.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n") and mode(path) == 0o600
    assert PrivateKey.load(path, "größe") == PrivateKey.load(path, "größe".encode()) == key
    for options, text in [((), "the key is encrypted; give its passphrase"), (("große",), "the passphrase is wrong")]:
        with pytest.raises(ValueError, match=f"^{path}: {text}"):
            PrivateKey.load(path, *options)
    with pytest.raises(ValueError, match="empty passphrase"):
        key.save(tmp_path / "n", "")
    for one in (key, key.public_key()):
        path.write_bytes(one.to_der())
        assert type(one).load(path) == one
    assert names(tmp_path) == ["k"]


def test_a_file_is_not_replaced_unasked(pairs: list[tuple[Any, Any]], tmp_path: pathlib.Path) -> None:
    path, link = tmp_path / "there", tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    for pair in pairs:
        for one in pair:
            path.write_bytes(b"old")
            path.chmod(0o644)
            for taken in (path, link, tmp_path):
                with pytest.raises(FileExistsError, match=r"the file exists; overwrite=True replaces it") as why:
                    one.save(taken)
                assert why.value.errno == errno.EEXIST and why.value.filename == str(taken)
            assert path.read_bytes() == b"old"
            one.save(path, overwrite=True)
            assert path.read_bytes() == one.to_pem() and mode(path) == (0o600 if hasattr(one, "sign") else 0o644)
            os.mkfifo(tmp_path / "pipe")
            for other in (tmp_path / "pipe", tmp_path):
                with pytest.raises(FileExistsError, match="no regular file"):
                    one.save(other, overwrite=True)
            (tmp_path / "pipe").unlink()
    assert names(tmp_path) == ["link", "there"]


def test_what_is_not_written_leaves_nothing(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    """A file that may not be as long as a key is: the system refuses the bytes."""
    code = (
        "import resource, signal, sys; from hypergrove import PrivateKey\n"
        "key = PrivateKey.load(sys.argv[1]); signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: key.save(sys.argv[2], overwrite=True)\n"
        "except OSError as why: print(why.errno, why.filename)\n"
    )
    key.save(tmp_path / "k.pem")
    (tmp_path / "old").write_bytes(b"old")
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "k.pem", tmp_path / "old"], capture_output=True, text=True)
    assert run.stdout.split() == [str(errno.EFBIG), str(tmp_path / "old")], run.stderr
    assert names(tmp_path) == ["k.pem", "old"] and (tmp_path / "old").read_bytes() == b"old"


def test_files_that_are_no_keys(pairs: list[tuple[Any, Any]], tmp_path: pathlib.Path) -> None:
    path, long = tmp_path / "release-key.pem", tmp_path / "long"
    missing = tmp_path / "release-key.pen"
    long.write_bytes(bytes((1 << 20) + 1))
    for private, public in pairs:
        for one, other in ((private, public), (public, private)):
            path.write_bytes(other.to_pem())
            with pytest.raises(ValueError, match=rf"^{path}: .*holds a p"):
                type(one).load(path)
            with pytest.raises(ValueError, match=rf"^{long}: more than 1,048,576 bytes"):
                type(one).load(long)
            for wrong, error, text in [
                (missing, FileNotFoundError, r"No such file .*release-key\.pen \(did you mean 'release-key\.pem'\?\)"),
                (tmp_path, IsADirectoryError, "Is a directory"),
                (path / "k", NotADirectoryError, "Not a directory"),
                (one.to_pem().decode(), ValueError, "looks like a key, not like the path of a file: .*; from_pem reads the text"),
                (one.to_pem(), TypeError, "path: bytes is no path; .*from_pem and from_der read bytes"),
                (7, TypeError, "path: int is no path"),
                (None, TypeError, "path: NoneType is no path"),
                ("a\0b", ValueError, "path: it has a character that no path has"),
                ("a\ud800b", ValueError, "path: it has a character that no path has"),
            ]:
                calls = [type(one).load] if wrong in (tmp_path, missing) else [type(one).load, one.save]
                for call in calls:
                    with pytest.raises(error, match=text) as why:
                        call(wrong)
                    if isinstance(why.value, OSError):
                        assert why.value.errno and why.value.strerror and why.value.filename.startswith(str(tmp_path))
                    assert why.value.__cause__ is None and why.value.__context__ is None


def test_fingerprints(key: PrivateKey, zk_key: zkdilithium.PrivateKey) -> None:
    def shown(*parts: bytes) -> str:
        return "SHA256:" + base64.b64encode(hashlib.sha256(b"".join(parts)).digest()).decode().rstrip("=")

    public = key.public_key()
    assert key.fingerprint == public.fingerprint == shown(public.to_der())
    # A key without SPKI has its scheme's name in its place.
    assert zk_key.fingerprint == zk_key.public_key().fingerprint == shown(b"zkDilithium\0", zk_key.public_key().to_raw())


def test_a_pipe_can_hold_a_key(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(key.to_pem()))
    writer.start()
    assert PrivateKey.load(pipe) == key
    writer.join()
