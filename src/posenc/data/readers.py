"""Local files as streams of text."""

import glob
import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from posenc.errors import UserError, needed_for

END = b"\0"
"""The end of a document, in every text stream and every tokenizer's vocabulary."""

CHUNK = 1 << 20
"""Bytes to read at once, to the end of the line."""

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


def find_files(path: str) -> list[Path]:
    """The readable text files that a file name, a folder or a glob stands for, in the order of their names.

    Raises:
        UserError: if there is none.
    """
    try:
        place = Path(path).expanduser()
        candidates = place.rglob("*") if place.is_dir() else map(Path, glob.glob(str(place), recursive=True))
        files = sorted(file for file in candidates if file.is_file() and _kind(file) in READERS)
    except (OSError, RuntimeError, ValueError) as error:  # a name too long, no such home, no such pattern
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"data.path={path} cannot be read: {reason}") from error
    if files:
        return files
    kinds = ", ".join(READERS)
    if not place.exists() and not glob.has_magic(path):
        raise UserError(f"data.path={path} does not exist")
    raise UserError(f"data.path={path} holds no text: wanted {kinds}, each also as {', '.join(OPENERS)}")


def file_fingerprint(file: Path) -> bytes:
    """What identifies a file's text: its content, and what its name says of how to read it.

    Raises:
        UserError: if the file cannot be read.
    """
    try:
        with file.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return f"{_kind(file)} {file.suffix in OPENERS} {content}".encode()


def read_file(file: Path, field: str, separator: str | None) -> Iterator[bytes]:
    """The text of one file in chunks, cut between lines; documents end with END.

    It is UTF-8 where the format says so (.jsonl, .parquet). What a .txt holds, its file does not say: a tokenizer of
    bytes takes any, others look for themselves.

    Raises:
        UserError: if the file cannot be read as what its name says.
    """
    try:
        yield from READERS[_kind(file)](file, field, separator)
    except UnicodeEncodeError as error:
        raise UserError(f"{file} holds half a surrogate pair, which is not text") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: {error.reason}") from error
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {error}") from error


def _kind(file: Path) -> str:
    """The suffix that names the format, without that of the compression."""
    suffixes = [suffix for suffix in file.suffixes if suffix not in OPENERS]
    return suffixes[-1] if suffixes else ""


def _open(file: Path) -> IO[bytes]:
    return OPENERS.get(file.suffix, open)(file, "rb")


def _line_blocks(file: Path) -> Iterator[list[bytes]]:
    with _open(file) as stream:
        while block := stream.readlines(CHUNK):
            yield block


def _read_txt(file: Path, field: str, separator: str | None) -> Iterator[bytes]:  # noqa: ARG001
    wanted = None if separator is None else separator.encode()
    for block in _line_blocks(file):
        if wanted is not None:
            block = [END if line.strip() == wanted else line for line in block]
        yield b"".join(block)


def _read_jsonl(file: Path, field: str, separator: str | None) -> Iterator[bytes]:  # noqa: ARG001
    number = 0
    for block in _line_blocks(file):
        documents = []
        for line in block:
            number += 1
            if line.strip():
                documents.append(_json_text(line, field, f"{file} line {number}") + END)
        yield b"".join(documents)


def _json_text(line: bytes, field: str, where: str) -> bytes:
    try:
        record = json.loads(line)
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not UTF-8 text: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        raise UserError(f"{where} has no text under the key data.field={field}")
    return record[field].encode()


def _read_parquet(file: Path, field: str, separator: str | None) -> Iterator[bytes]:  # noqa: ARG001
    with needed_for(f"{file.name}"):
        import pyarrow
        import pyarrow.parquet

    try:
        with _open(file) as stream:
            table = pyarrow.parquet.ParquetFile(stream)
            if field not in table.schema_arrow.names:
                names = ", ".join(table.schema_arrow.names)
                raise UserError(f"{file} has no column data.field={field}, only {names}")
            for batch in table.iter_batches(batch_size=1024, columns=[field]):
                yield b"".join(str(text).encode() + END for text in batch.column(0).to_pylist() if text is not None)
    except pyarrow.ArrowException as error:
        raise UserError(f"{file} cannot be read: {error}") from error


READERS: dict[str, Callable[[Path, str, str | None], Iterator[bytes]]] = {
    ".txt": _read_txt,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".tokens": _read_txt,  # WikiText's own name for its text
}
