"""Files of keys and of messages."""

import base64
import errno
import gzip
import hashlib
import io
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from typing import Any

import pytest

from hypergrove import Engine, PrivateKey, PublicKey, zkdilithium

REDUNDANT = Engine(devices="cpu", threads=1, redundant=True)


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


def test_messages_in_files(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    public, path = key.public_key(), tmp_path / "message"
    for data in (b"", b"Dear reader", os.urandom((5 << 20) + 7)):
        for context, prehash in ((None, None), (b"letters", None), (b"letters", "SHA2-512")):
            path.write_bytes(data)
            options: dict[str, Any] = {"prehash": prehash}
            expected = key.sign(data, context, deterministic=True, **options)
            for engine in (None, REDUNDANT):
                more = options | {"engine": engine}
                assert key.sign_file(path, context, deterministic=True, **more) == expected
                assert public.verify_file(str(path), expected, context, **more) is True
                assert public.verify_file(path, key.sign_file(path, context, **more), context, **more) is True
            assert public.verify_file(path, expected, b"letter", **options) is False
            assert public.verify_file(path, expected[:-1], context, **options) is False
            assert public.verify_file(path, bytearray(expected), context, prehash="SHAKE128") is False
            path.write_bytes(data + b"!")
            assert public.verify_file(path, expected, context, **options) is False
    with pytest.raises(ValueError, match="256"):
        key.sign_file(path, bytes(256))


def test_messages_in_open_files(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    """The message begins where Python's object is, which may have read ahead and may have to write; the object stays there."""
    public, path = key.public_key(), tmp_path / "message"
    path.write_bytes(b"head, message")
    signature = key.sign(b"message", deterministic=True)
    with open(path, "rb") as one, open(path, "rb", buffering=0) as two, open(path, "r+b") as three, tempfile.NamedTemporaryFile() as four:
        four.write(b"head, message")
        for file in (one, two, three, four):
            file.seek(0)
            assert file.read(6) == b"head, "
            assert key.sign_file(file, deterministic=True) == signature
            assert public.verify_file(file, signature) is True
            assert file.tell() == 6 and file.read() == b"message"
            assert public.verify_file(file, key.sign(b"")) is True
        three.seek(6)
        three.write(b"MES")
        three.seek(6)
        assert public.verify_file(three, key.sign(b"MESsage")) is True
    with tempfile.TemporaryFile() as file:
        file.write(b"message")
        file.seek(0)
        assert key.sign_file(file, deterministic=True) == signature


def test_what_is_no_file_of_a_message(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    public, path = key.public_key(), tmp_path / "release-1.0.tar"
    path.write_bytes(b"message")
    signature, closed = key.sign(b"message"), open(path, "rb")
    closed.close()
    with open(path) as text, gzip.open(tmp_path / "z.gz", "wb") as zipped, open(path, "ab") as to_write:
        for wrong, error, text_of_it in [
            (b"message", TypeError, r'file: bytes is no path; give a path or what open\(path, "rb"\) returns; sign and is_valid take bytes'),
            (io.BytesIO(b"message"), TypeError, "file: BytesIO is no path; give a path or what open"),
            (text, TypeError, "file: TextIOWrapper is no path"),
            (zipped, TypeError, "file: GzipFile is no path"),
            (to_write, TypeError, "file: BufferedWriter is no path"),
            (7, TypeError, "file: int is no path"),
            (closed, ValueError, "closed file"),
            ("a\0b", ValueError, "file: it has a character that no path has"),
            (tmp_path / "release-1.0.tap", FileNotFoundError, r"release-1\.0\.tap \(did you mean 'release-1\.0\.tar'\?\)"),
            (tmp_path, IsADirectoryError, "Is a directory"),
        ]:
            for call in (key.sign_file, lambda file: public.verify_file(file, signature)):
                with pytest.raises(error, match=text_of_it) as why:
                    call(wrong)
                if isinstance(why.value, OSError):
                    assert why.value.errno and why.value.filename.startswith(str(tmp_path))
                    assert why.value.__cause__ is None and why.value.__context__ is None
    with pytest.raises(TypeError, match="signature: PosixPath"):
        public.verify_file(signature, path)


def test_pipes_are_read_once(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    """The writer is a thread of this process: it writes only if the call lets other threads run."""
    public, pipe, data = key.public_key(), tmp_path / "pipe", os.urandom(3 << 20)
    os.mkfifo(pipe)

    def written(call: Any) -> Any:
        writer = threading.Thread(target=lambda: pipe.write_bytes(data))
        writer.start()
        done = call()
        writer.join()
        return done

    signature = written(lambda: key.sign_file(pipe, prehash="SHA2-256"))
    assert written(lambda: public.verify_file(pipe, signature, prehash="SHA2-256")) is True
    assert written(lambda: public.verify_file(pipe, key.sign(data))) is True

    def unbuffered() -> bool:
        with open(pipe, "rb", buffering=0) as file:
            return public.verify_file(file, key.sign(data))

    assert written(unbuffered) is True
    end = os.open(pipe, os.O_RDWR)
    try:
        with pytest.raises(OSError, match="reads its message twice, and this cannot be read twice") as why:
            key.sign_file(pipe)
        assert (why.value.errno, why.value.filename) == (errno.ESPIPE, str(pipe))
        with open(pipe, "rb") as file, pytest.raises(TypeError, match="a pipe with a buffer"):
            public.verify_file(file, signature)
    finally:
        os.close(end)


def test_a_file_that_changes(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    public, path, ends = key.public_key(), tmp_path / "log", threading.Event()
    path.write_bytes(bytes(64 << 20))

    def write() -> None:
        with open(path, "ab", buffering=0) as file:
            while not ends.wait(0.001):
                file.write(b"line")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for call in (
            lambda: key.sign_file(path),
            lambda: key.sign_file(path, prehash="SHA2-256"),
            lambda: public.verify_file(path, key.sign(b"")),
        ):
            with pytest.raises(OSError, match="the file changed while it was read") as why:
                call()
            assert (why.value.errno, why.value.filename) == (errno.EBUSY, str(path))
    finally:
        ends.set()
        writer.join()
    assert public.verify_file(path, key.sign_file(path)) is True


def test_memory_is_constant(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    code = (
        "import resource, sys; from hypergrove import PrivateKey\n"
        "key = PrivateKey.load(sys.argv[1]); public, context = key.public_key(), b'c'\n"
        "def most():\n"
        "    assert public.verify_file(sys.argv[2], key.sign_file(sys.argv[2], context), context)\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
        "open(sys.argv[2], 'wb').truncate(16 << 20); before = most()\n"
        "open(sys.argv[2], 'wb').truncate(192 << 20); print(most() - before)\n"
    )
    key.save(tmp_path / "k.pem")
    command = [sys.executable, "-c", code, tmp_path / "k.pem", tmp_path / "message"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert int(run.stdout) < 32, run.stderr


def test_signals_end_a_call_that_waits(key: PrivateKey, tmp_path: pathlib.Path) -> None:
    """For the other end of a pipe, which has no writer, or has one that does not write."""

    class Ended(Exception):
        pass

    def end(*_: object) -> None:
        # A signal that comes between a check and the wait for the pipe ends nothing, so there are several.
        if waits:
            waits.clear()
            raise Ended

    waits: list[bool] = []
    public, pipe = key.public_key(), tmp_path / "pipe"
    os.mkfifo(pipe)
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        for is_open in (False, True):
            writer = os.open(pipe, os.O_RDWR) if is_open else None
            for call in (
                lambda: key.sign_file(pipe, prehash="SHA2-256"),
                lambda: public.verify_file(pipe, b""),
                lambda: PrivateKey.load(pipe),
            ):
                waits.append(True)
                with pytest.raises(Ended):
                    call()
            if writer is not None:
                os.close(writer)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
