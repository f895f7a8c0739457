"""Ray and Spark on small clusters, and what happens to rows when workers and nodes go: `cargo xtask ci full python` alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from clusters import STORIES


@pytest.mark.parametrize("story", STORIES)
def test_clusters(story: str, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("clusters.py")), story, str(tmp_path)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-8000:]
