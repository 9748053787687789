"""Readers of local text files."""

import codecs
import glob
import gzip
import io
import itertools
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn

from posenc.compat import open_xz
from posenc.errors import UserError, needed_for

END = b"\0"
"""End of document, in every text stream and every tokenizer's vocabulary."""

CHUNK = 1 << 20
"""Bytes to read at once, extended to the end of the line."""


class _WithoutPadding(io.FileIO):
    """A file without the zero bytes at its end, which may follow the streams of an .xz file."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        start = max(0, self.seek(0, os.SEEK_END) - CHUNK)
        self.seek(start)
        self.end = start + len(self.readall().rstrip(b"\0"))
        self.seek(0)

    def read(self, size: int | None = -1) -> bytes:
        left = self.end - self.tell()
        return super().read(left if size is None or size < 0 else min(size, left))


@contextmanager
def _open_xz(file: Path) -> Iterator[IO[bytes]]:
    with _WithoutPadding(file) as stream, open_xz(stream) as text:
        yield text


OPENERS: dict[str, Callable[[Path], AbstractContextManager[Any]]] = {".gz": gzip.open, ".xz": _open_xz}

TEXT_TYPES = ("string", "large_string", "string_view")
"""Types of a column with text, in Arrow's names."""


def find_files(path: str) -> list[Path]:
    """The text files given by a file name, a folder or a glob, sorted by name, each once whatever links to it.

    Raises:
        UserError: if there is none, or a folder cannot be read.
    """
    try:
        root = Path(path).expanduser()
        found = below(root) if root.is_dir() else [root] if root.exists() else _globbed(root)
        texts = (file for file in found if _format(file) in READERS and (file.is_file() or not file.exists()))
        files = sorted({_identity(file): file for file in sorted(texts, reverse=True)}.values())
    except (OSError, RuntimeError, ValueError) as error:  # a long name, an unknown home, an invalid pattern
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"data.path={path} cannot be read: {reason}") from error
    named: dict[Path, Path] = {}
    for file in files:
        if (other := named.setdefault(_uncompressed(file), file)) != file:
            raise UserError(
                f"data.path={path} has {other} and {file}: remove one, since the validation split of a text that is "
                "there twice may be in the training split"
            )
    if files:
        return files
    if not root.exists() and not glob.has_magic(path):
        raise UserError(f"data.path={path} does not exist")
    raise UserError(f"data.path={path} has no text files: expected {suffixes()}")


def _identity(file: Path) -> object:
    """The same for all names of a file, also for hard links."""
    if file.exists() and (status := file.stat()).st_nlink > 1:
        return status.st_dev, status.st_ino
    return os.path.realpath(file)


def suffixes() -> str:
    """The suffixes of text files, for error messages."""
    return f"{', '.join(filter(None, READERS))} or no suffix, also with {' or '.join(OPENERS)}"


def would_find(path: str, file: Path) -> bool:
    """Whether `find_files` would find a file that may not exist yet."""
    return _format(file) in READERS and would_contain(path, file)


def would_contain(path: str, file: Path) -> bool:
    """Whether a file that may not exist yet is below a folder, as in `below`, or matches a glob."""
    root = Path(os.path.realpath(os.path.expanduser(path)))
    pattern = Path(glob.escape(str(root)), "**") if root.is_dir() else root
    return _matches(Path(os.path.realpath(file)).parts, pattern.parts)


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether the parts of a path match those of a glob.

    ** matches any number of them; one that begins with a dot, only a pattern that does.
    """
    if not pattern:
        return not parts
    if pattern[0] == "**" and _matches(parts, pattern[1:]):
        return True
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return (
        _matches(parts[1:], pattern)
        if pattern[0] == "**"
        else fnmatch(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
    )


def _globbed(pattern: Path) -> list[Path]:
    patterns = {pattern.parent, *(parent for parent in pattern.parents if glob.has_magic(str(parent)))}
    for folder in map(Path, itertools.chain(*(glob.iglob(f"{parent}/", recursive=True) for parent in patterns))):
        if folder.is_symlink() and folder.parent.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"data.path={pattern} is a symlink loop: {folder} links to a folder that contains it")
        try:
            os.listdir(folder)  # glob silently skips folders that it cannot read
        except OSError as error:
            _refuse(error)
    return [Path(file) for file in glob.glob(str(pattern), recursive=True)]


def below(folder: Path) -> Iterator[Path]:
    """All files in a folder, recursively and through links, except hidden ones such as those in .git."""
    seen = set()
    for parent, folders, names in os.walk(folder, onerror=_refuse, followlinks=True):
        real = os.path.realpath(parent)
        folders[:] = [name for name in folders if real not in seen and not name.startswith(".")]
        seen.add(real)
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _refuse(error: OSError) -> NoReturn:
    raise UserError(f"{error.filename} cannot be read: {error.strerror}") from error


def read_file(file: Path, field: str, separator: str | None) -> Iterator[bytes]:
    """The text of one file, UTF-8, in chunks split at line ends; documents end with END.

    Except the last document of a .txt file that does not end with the separator.

    Raises:
        UserError: if the file cannot be read in the format given by its suffix.
    """
    try:
        yield from READERS[_format(file)](file, field, separator)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise UserError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except MemoryError as error:
        raise UserError(
            f"{file} cannot be read: it has a line, or a row group, that does not fit into memory"
        ) from error


def _format(file: Path) -> str:
    """The suffix of the format, without that of a compression."""
    return _uncompressed(file).suffix.lower()


def _uncompressed(file: Path) -> Path:
    """The file's name without the suffix of a compression."""
    return file.with_suffix("") if file.suffix.lower() in OPENERS else file


def _open(file: Path) -> AbstractContextManager[IO[bytes]]:
    return OPENERS.get(file.suffix.lower(), partial(open, mode="rb"))(file)


def _line_blocks(file: Path) -> Iterator[tuple[int, list[bytes]]]:
    """The lines in blocks, without a byte order mark, and the position of each block."""
    with _open(file) as stream:
        if stream.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            stream.seek(0)
        position = stream.tell()
        while block := stream.readlines(CHUNK):
            yield position, block
            position = stream.tell()


def _read_txt(file: Path, field: str, separator: str | None) -> Iterator[bytes]:  # noqa: ARG001
    end = None if separator is None else separator.strip().encode()
    for position, block in _line_blocks(file):
        text = b"".join(block)
        _check_text(text, position, file)
        yield text if end is None else b"".join(END if line.strip() == end else line for line in block)


def _check_text(text: bytes, position: int, file: Path) -> None:
    """Check for UTF-8: Latin-1 is detected by its accents, UTF-16 by its byte order mark or zero bytes."""
    wrong = text.find(END)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        wrong = error.start if wrong < 0 else min(wrong, error.start)
    if wrong >= 0:
        raise UserError(
            f"{file} is not UTF-8 text: byte {position + wrong} is 0x{text[wrong]:02x}; "
            "convert it, for example with `iconv -f utf-16 -t utf-8` or `iconv -f latin1 -t utf-8`"
        )


def _read_jsonl(file: Path, field: str, separator: str | None) -> Iterator[bytes]:  # noqa: ARG001
    numbers = itertools.count(1)
    for _, block in _line_blocks(file):
        lines = [(line, f"{file} line {next(numbers)}") for line in block]
        yield b"".join(encoded(_json_text(line, field, where), where) + END for line, where in lines if line.strip())


def character_from(text: bytes | bytearray, start: int) -> int:
    """The position of the first character of a UTF-8 text that begins at `start` or after it."""
    while start < len(text) and text[start] & 0xC0 == 0x80:  # continues a character
        start += 1
    return start


def encoded(text: str, where: str) -> bytes:
    """A document as UTF-8.

    Raises:
        UserError: if it cannot be encoded, or contains END.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where} contains an unpaired surrogate, which is not valid text") from error
    if END in data:
        raise UserError(f"{where} contains a NUL character, which would end the document")
    return data


def _json_text(line: bytes, field: str, where: str) -> str:
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not UTF-8 text: {error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get(field), str):
        raise UserError(f"{where} has no text under the key data.field={field}")
    return record[field]


def _read_parquet(file: Path, field: str, separator: str | None) -> Iterator[bytes]:  # noqa: ARG001
    with needed_for(file.name):
        import pyarrow
        import pyarrow.parquet

    try:
        with _open(file) as stream:
            table = pyarrow.parquet.ParquetFile(stream)
            names = table.schema_arrow.names
            if names.count(field) != 1:
                raise UserError(f"{file} must have one column data.field={field}, and has {', '.join(names)}")
            dtype = table.schema_arrow.field(field).type
            if str(dtype.value_type if pyarrow.types.is_dictionary(dtype) else dtype) not in TEXT_TYPES:
                raise UserError(f"{file}: the column data.field={field} contains {dtype}, not text")
            for batch in table.iter_batches(batch_size=1024, columns=[field]):
                texts = batch.column(0).to_pylist()
                yield b"".join(encoded(text, str(file)) + END for text in texts if text is not None)
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: {error.reason}") from error
    except pyarrow.ArrowException as error:
        raise UserError(f"{file} cannot be read: {error}") from error


READERS: dict[str, Callable[[Path, str, str | None], Iterator[bytes]]] = {
    ".txt": _read_txt,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".md": _read_txt,
    ".tokens": _read_txt,  # used by WikiText
    "": _read_txt,
}


def is_plain_text(file: Path) -> bool:
    """Whether the format is plain text, whose documents may end with a separator."""
    return READERS[_format(file)] is _read_txt
