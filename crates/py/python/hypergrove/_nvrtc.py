"""NVRTC of PyPI, which compiles CUDA's kernels: `pip install 'hypergrove[cuda]'` brings it.

The engine looks for NVRTC by its name, as the system's loader does, and the loader knows no folders of Python's packages. A library
that the process has loaded already is found by its name.
"""

import sys
from pathlib import Path

# CUDA 12's comes first: every driver since then loads what it compiles.
PLACES = ("cuda_nvrtc/lib/libnvrtc.so.12", "cuda_nvrtc/bin/nvrtc64_120_0.dll", "cu13/lib/libnvrtc.so.13")


def load() -> str | None:
    """Loads NVRTC where pip has put it; the library's path, or None."""
    # Not from the working directory, whoever has written there.
    folders = [folder for folder in sys.path if Path(folder).is_absolute()]
    found = (Path(folder, "nvidia", place) for place in PLACES for folder in folders)
    path = next((str(path) for path in found if path.is_file()), None)
    if path is None:
        return None
    import ctypes

    try:
        ctypes.CDLL(path)
    except OSError:
        # The engine says what it lacks once a GPU needs it.
        return None
    return path
