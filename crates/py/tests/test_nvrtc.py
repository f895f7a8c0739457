"""NVRTC where pip puts it is loaded by the first engine. On a machine without a GPU another library stands for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hypergrove._hypergrove

LOADS = """
import sys
from hypergrove import Engine, sha256_batch
is_loaded = lambda: "libnvrtc.so.12" in open("/proc/self/maps").read()
before = is_loaded()
{use}
print(before, is_loaded())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="loaded libraries are listed by Linux")
@pytest.mark.parametrize("use", ["sha256_batch([b''])", "Engine(devices='cpu')"])
@pytest.mark.parametrize("kind", ["a library", "no library", "nothing", "in the working directory"])
def test_the_first_engine_loads_it(tmp_path: Path, use: str, kind: str) -> None:
    place = tmp_path / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
    place.parent.mkdir(parents=True)
    if kind == "no library":
        place.write_text("not a library")
    elif kind != "nothing":
        shutil.copy(hypergrove._hypergrove.__file__, place)
    environment = os.environ | {"PYTHONPATH": "" if kind == "in the working directory" else str(tmp_path)}
    command = [sys.executable, "-c", LOADS.format(use=use)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
    assert (ran.returncode, ran.stdout.split()) == (0, ["False", str(kind == "a library")]), ran
