"""NVRTC where pip puts it is loaded once an engine finds one of CUDA's devices. Another library may stand for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hypergrove._hypergrove
from hypergrove import Engine

USE = """
from hypergrove import Engine, sha256_batch
from hypergrove._nvrtc import load
{use}
print("libnvrtc.so.12" in open("/proc/self/maps").read())
"""


def is_loaded(folder: Path, kind: str, use: str) -> bool:
    """Whether a process loads it that does so."""
    place = folder / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
    place.parent.mkdir(parents=True)
    if kind == "no library":
        place.write_text("not a library")
    elif kind != "nothing":
        shutil.copy(hypergrove._hypergrove.__file__, place)
    environment = os.environ | {"PYTHONPATH": "" if kind == "in the working directory" else str(folder)}
    command = [sys.executable, "-c", USE.format(use=use)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=folder)
    assert ran.returncode == 0 and ran.stdout in ("True\n", "False\n"), ran
    return ran.stdout == "True\n"


LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="loaded libraries are listed by Linux")


@LINUX
@pytest.mark.parametrize("kind", ["a library", "no library", "nothing", "in the working directory"])
def test_where_pip_puts_it(tmp_path: Path, kind: str) -> None:
    use = f"assert (load() is None) == {kind != 'a library'}"
    assert is_loaded(tmp_path, kind, use) == (kind == "a library")


@LINUX
@pytest.mark.parametrize("use", ["sha256_batch([b''])", "Engine(devices='cpu')", "Engine()"])
def test_the_cpu_needs_none(tmp_path: Path, use: str) -> None:
    assert not is_loaded(tmp_path, "a library", use)


@LINUX
@pytest.mark.parametrize("use", ["Engine(devices='cuda')", "Engine().empty(1)"])
def test_cuda_loads_it(tmp_path: Path, use: str) -> None:
    try:
        Engine(devices="cuda")
    except ValueError as why:
        pytest.skip(f"no GPU of CUDA: {why}")
    assert is_loaded(tmp_path, "a library", use)


HOOK = """
import sys
import hypergrove
from hypergrove import Engine, sha256_batch

seen = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "hypergrove._nvrtc":
            uses = (
                lambda: sha256_batch([b""], engine=engine),
                lambda: sha256_batch([b""]),
                lambda: engine.empty(1),
                lambda: Engine(devices="cuda"),
            )
            for use in uses:
                try:
                    use()
                except RuntimeError as why:
                    seen.append(str(why))
        return None

sys.meta_path.insert(0, Finder())
engine = hypergrove.Engine()
engine.empty(1)
assert len(seen) == 4 and all("NVRTC" in why for why in seen), seen
assert bytes(sha256_batch([b""], engine=engine)[0]).hex().startswith("e3b0c442")
"""


def test_an_import_hook_gets_an_error_and_no_deadlock() -> None:
    try:
        Engine(devices="cuda")
    except ValueError as why:
        pytest.skip(f"no GPU of CUDA: {why}")
    ran = subprocess.run([sys.executable, "-c", HOOK], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran
