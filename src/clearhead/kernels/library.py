"""The kernels, compiled for this very processor when they are first needed, and kept.

A compiler takes a few seconds, once. The result lies in the user's cache folder, under a name that changes with the
source, the compiler's options and the processor. Where there is no compiler there are no kernels.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from ctypes import CDLL, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("kernels.cpp")
COMPILERS = ("c++", "g++", "clang++")
OPTIONS = ["-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-fPIC", "-shared"]


@cache
def library() -> CDLL | None:
    """The compiled kernels; `None` if this machine has none, or `CLEARHEAD_KERNELS=off` says that none are wanted."""
    if os.environ.get("CLEARHEAD_KERNELS") == "off" or os.name != "posix":
        return None
    try:
        return load(compiled())
    except (OSError, subprocess.SubprocessError, AttributeError):
        return None


def compiled() -> Path:
    """The shared library, compiled now if it never was. Raises what a compiler may raise, `OSError` without one."""
    source = SOURCE.read_bytes()
    kind = hashlib.sha256(b"\0".join([source, " ".join(OPTIONS).encode(), processor().encode()])).hexdigest()[:16]
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clearhead"
    target = cache_folder / f"kernels-{kind}.so"
    if not target.exists():
        compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, COMPILERS)), None)
        if compiler is None:
            raise FileNotFoundError("no C++ compiler")
        cache_folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder) as folder:
            fresh = Path(folder) / target.name
            command = [compiler, *OPTIONS, str(SOURCE), "-o", str(fresh)]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            fresh.replace(target)
    return target


def processor() -> str:
    """What a processor can do: a cache folder may be shared by several machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return f"{platform.machine()} {platform.processor()} {platform.node()}"


def load(path: Path) -> CDLL:
    """Open the library and say what its functions take."""
    found = CDLL(str(path))  # torch is loaded by now, and so the OpenMP that is found is torch's
    functions = {
        "panel_columns": ([], c_int),
        "packed_product": ([c_void_p] * 4 + [c_int64] * 3 + [c_int], None),
        "attend": ([c_void_p] * 6 + [c_int64] * 10 + [c_float, c_int], None),
        "has_int16": ([], c_int),
    }
    if found.has_int16():
        functions["quantize_rows"] = ([c_void_p] * 3 + [c_int64] * 2, None)
        functions["integer_product"] = ([c_void_p] * 5 + [c_int64] * 3 + [c_int], None)
    for name, (arguments, result) in functions.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, result
    return found
