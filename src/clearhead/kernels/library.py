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
from ctypes import CDLL, POINTER, Structure, c_float, c_int, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("kernels.cpp")
HEADERS = ("vectors.h", "products.h", "attention.h", "layers.h", "logits.h")
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
    sources = [SOURCE.with_name(name).read_bytes() for name in (SOURCE.name, *HEADERS)]
    kind = hashlib.sha256(b"\0".join([*sources, " ".join(OPTIONS).encode(), processor().encode()])).hexdigest()[:16]
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
    functions: dict[str, tuple[list[Any], Any]] = {
        "panel_columns": ([], c_int),
        "has_int16": ([], c_int),
        "has_int8": ([], c_int),
        "packed_product": ([POINTER(Matrix), c_void_p, c_void_p, c_int64, c_int], None),
        "run_layer": (
            [
                POINTER(Layer), c_void_p, c_void_p, POINTER(Rows), POINTER(Entries), POINTER(Entries), POINTER(Angles),
                c_void_p, c_int,
            ],
            None,
        ),
        "best_logits": (
            [POINTER(Matrix), c_void_p, c_void_p, c_int64] + [c_void_p] * 3 + [c_int64, c_int64, c_int], None,
        ),
    }  # fmt: skip
    if found.has_int16():
        functions["quantize_rows"] = ([c_void_p] * 3 + [c_int64] * 2, None)
    for name, (arguments, result) in functions.items():
        function = getattr(found, name)
        function.argtypes, function.restype = arguments, result
    return found


class Matrix(Structure):
    """A packed matrix (products.h)."""

    _fields_ = (
        ("panels", c_void_p), ("steps", c_void_p), ("sums", c_void_p), ("bias", c_void_p),
        ("columns", c_int64), ("depth", c_int64),
    )  # fmt: skip


class Heads(Structure):
    """The heads of an attention (attention.h)."""

    _fields_ = (("heads", c_int64), ("key_heads", c_int64), ("width", c_int64))


class Entries(Structure):
    """What queries attend to (attention.h)."""

    _fields_ = (
        ("keys", c_void_p), ("values", c_void_p), ("mask", c_void_p), ("count", c_int64),
        ("sentence_stride", c_int64), ("head_stride", c_int64), ("entry_stride", c_int64),
        ("mask_sentence_stride", c_int64), ("mask_beam_stride", c_int64),
    )  # fmt: skip


class Rows(Structure):
    """Which hypotheses have rows (attention.h)."""

    _fields_ = (("places", c_void_p), ("count", c_int64), ("sentences", c_int64), ("beams", c_int64))


class Norm(Structure):
    """A normalisation (layers.h)."""

    _fields_ = (("gamma", c_void_p), ("beta", c_void_p), ("epsilon", c_float))


class Layer(Structure):
    """A layer (layers.h)."""

    _fields_ = (
        ("shape", Heads),
        ("query", Matrix), ("key", Matrix), ("value", Matrix), ("self_output", Matrix),
        ("cross_query", Matrix), ("cross_output", Matrix),
        ("inner", Matrix), ("gate", Matrix), ("outer", Matrix),
        ("norms", Norm * 3),
        ("activation", c_int), ("pre_norm", c_int),
    )  # fmt: skip


class Angles(Structure):
    """What positions turn by (layers.h)."""

    _fields_ = (("cosine", c_void_p), ("sine", c_void_p), ("stride", c_int64))
