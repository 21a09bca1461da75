"""A file of named arrays and of what describes them, in the layout of safetensors.

Eight bytes (little-endian) give the length of a JSON header: dtype, shape and place of
every array, and metadata. The arrays' bytes follow. Nothing in it can be executed. The
layout needs the ``struct`` of eight bytes, JSON and numpy, so the safetensors package
is no dependency; it reads these files, which the tests check.

The metadata are strings: ``sha256``, of the whole file with zeros in its place;
``format``; ``format_version``; ``sklode_version``, of the writer; ``state``, JSON. The
checksum comes first, so that it stands at the same bytes in every version. It shows
damage, not malice: who reads must check what the state says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from importlib.metadata import version
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklode.data.errors import WeightsFileError

__all__ = ["FORMAT_VERSION", "Arrays", "read", "require", "write"]

Arrays = dict[str, NDArray[Any]]
"""Arrays by the names that a file gives them."""

FORMAT_VERSION = 1
"""Rises when a reader of the version before could not read the file rightly."""

_FORMAT = "sklode forecaster"
_MARK = b'{"__metadata__":{"sha256":"'
"""How every header begins; the checksum follows."""

_ZEROS = b"0" * 64
_SUM_AT = 8 + len(_MARK)
_LARGEST_HEADER = 100_000_000
"""In bytes; the safetensors package reads no larger ones."""

_DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "BOOL": "|b1"}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}


def write(path: str | os.PathLike[str], state: dict[str, Any], arrays: Arrays) -> None:
    """Write a file, whole or not at all.

    Parameters
    ----------
    path : path-like
        A file that is there is replaced once the new one is complete.
    state : dict
        As JSON has it: without NaN, with str as keys.
    arrays : dict of str to ndarray
        Of float64, float32, int64 or bool.

    Raises
    ------
    WeightsFileError
        If the state is larger than a header can be.
    OSError
        If the file cannot be written; FileNotFoundError if its folder is not there.
    """
    # wide numbers first: each array then begins at a multiple of its own width
    names = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    stored = {name: _little_endian(arrays[name]) for name in names}
    header = _header(state, stored)
    if len(header) > _LARGEST_HEADER:
        raise WeightsFileError(
            f"what describes a forecaster must fit into {_LARGEST_HEADER} bytes; got "
            f"{len(header)}. Fit on fewer series, or use pickle."
        )
    parts = [len(header).to_bytes(8, "little") + header]
    parts += [array.tobytes() for array in stored.values()]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    checksum = digest.hexdigest().encode()
    parts[0] = parts[0][:_SUM_AT] + checksum + parts[0][_SUM_AT + 64 :]
    with _replacing(Path(os.path.realpath(path))) as file:
        for part in parts:
            file.write(part)


def _little_endian(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _header(state: dict[str, Any], arrays: Arrays) -> bytes:
    """Return the header, padded to whole eights of bytes, with a sum of zeros."""
    metadata = {
        "sha256": _ZEROS.decode(),
        "format": _FORMAT,
        "format_version": str(FORMAT_VERSION),
        "sklode_version": version("sklode"),
        "state": json.dumps(state, allow_nan=False, separators=(",", ":")),
    }
    table: dict[str, Any] = {"__metadata__": metadata}
    place = 0
    for name, array in arrays.items():
        table[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [place, place + array.nbytes],
        }
        place += array.nbytes
    header = json.dumps(table, separators=(",", ":")).encode()
    return header + b" " * (-len(header) % 8)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Any]:
    """Open a file beside ``path``, which takes its place if all goes well."""
    if not path.parent.exists():  # the system would name the file beside
        raise FileNotFoundError(
            f"the folder of a weights file must be there; got {str(path)!r}. Make it "
            "first: pathlib.Path(path).parent.mkdir(parents=True)."
        )
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Return the state and the arrays of a file.

    Raises
    ------
    WeightsFileError
        If the file is not one of these, is damaged, or of a later version.
    OSError
        If it cannot be read; FileNotFoundError if there is none.
    """
    content = Path(path).read_bytes()
    _check_sum(content, path)
    length = int.from_bytes(content[:8], "little")
    if length > min(_LARGEST_HEADER, len(content) - 8):
        raise _damaged(path, f"its header claims {length} bytes")
    header = _from_json(content[8 : 8 + length], path)
    metadata = header.pop("__metadata__")
    _check_version(metadata, path)
    state = _from_json(metadata.get("state", ""), path)
    return state, _arrays(header, memoryview(content)[8 + length :], path)


def _check_sum(content: bytes, path: str | os.PathLike[str]) -> None:
    if content[8:_SUM_AT] != _MARK:
        raise WeightsFileError(
            "a weights file must be one that save_weights wrote; got "
            f"{os.fspath(path)}, which is none or was cut off. Pickles, and the zip "
            "files of save(), are loaded by what wrote them; only if you trust them."
        )
    digest = hashlib.sha256(content[:_SUM_AT])
    digest.update(_ZEROS)
    digest.update(memoryview(content)[_SUM_AT + 64 :])
    if digest.hexdigest().encode() != content[_SUM_AT : _SUM_AT + 64]:
        raise _damaged(path, "its content differs from its checksum")


def _check_version(metadata: Any, path: str | os.PathLike[str]) -> None:
    """Refuse what is of another format or of a later version of it."""
    texts = isinstance(metadata, dict) and all(
        isinstance(text, str) for text in metadata.values()
    )
    if not texts or metadata.get("format") != _FORMAT:
        raise _damaged(path, "it does not name its format")
    number = metadata.get("format_version", "")
    if number in (str(known) for known in range(1, FORMAT_VERSION + 1)):
        return
    raise WeightsFileError(
        f"a weights file must be of a format up to version {FORMAT_VERSION}; got "
        f"version {number[:20]} in {os.fspath(path)}, written by sklode "
        f"{metadata.get('sklode_version', '')[:20]}. Upgrade sklode (here: "
        f"{version('sklode')})."
    )


def _from_json(text: bytes | str, path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is no JSON") from error
    if not isinstance(found, dict):
        raise _damaged(path, "its header is no JSON object")
    return found


def _arrays(
    table: dict[str, Any], body: memoryview, path: str | os.PathLike[str]
) -> Arrays:
    """Return the arrays, which must fill the body without holes."""
    arrays: Arrays = {}
    end = 0
    try:
        for name, entry in sorted(table.items(), key=_place):
            dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), entry["shape"]
            begin, after = entry["data_offsets"]
            sizes = [*shape, begin, after]
            if not all(type(size) is int and size >= 0 for size in sizes):
                raise ValueError("sizes are whole numbers")
            if begin != end or after - begin != prod(shape) * dtype.itemsize:
                raise ValueError("places fit sizes")
            flat = np.frombuffer(body[begin:after], dtype)
            native = flat.astype(dtype.newbyteorder("="))  # a copy: may be changed
            arrays[name], end = native.reshape(shape), after
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise _damaged(path, "its table of arrays is not consistent") from error
    if end != len(body):
        raise _damaged(path, f"its arrays end at {end} of {len(body)} bytes")
    return arrays


def _place(item: tuple[str, Any]) -> tuple[int, int]:
    begin, end = item[1]["data_offsets"]
    return begin, end


def _damaged(path: str | os.PathLike[str], what: str) -> WeightsFileError:
    return WeightsFileError(
        "a weights file must be as save_weights wrote it; got "
        f"{os.fspath(path)}, and {what}. Get the file again, or write it anew."
    )


def require(condition: bool, got: str) -> None:
    """Refuse a file that holds what no forecaster could have stored.

    Raises
    ------
    WeightsFileError
        If the condition is not met.
    """
    if not condition:
        raise WeightsFileError(
            f"a weights file must hold what save_weights stores; got {got}. Write the "
            "file anew."
        )
