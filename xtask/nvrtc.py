"""Compiles each source whose path follows that of NVRTC, for an H100."""

import ctypes
import pathlib
import sys

nvrtc = ctypes.CDLL(sys.argv[1])
options = [b"-std=c++17", b"-default-device", b"--gpu-architecture=sm_90"]
for path in map(pathlib.Path, sys.argv[2:]):
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), path.read_bytes(), b"kernel.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 3, (ctypes.c_char_p * 3)(*options)) == 0, path
    assert nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)) == 0
    code = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetCUBIN(program, code) == 0
    path.with_suffix(".cubin").write_bytes(code.raw)
