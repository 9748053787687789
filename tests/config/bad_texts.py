"""Texts that cannot be trained on, and the sentence that each is answered with."""

import gzip
import lzma
import os
import socket
from collections.abc import Callable
from pathlib import Path

from tests.config.wrong_input import Wrong, train

SENTENCES = b"In the beginning God created the heaven and the earth.\n" * 2000
RECORD = b'{"text": "b"}\n'
LATIN = "caf\xe9 au lait, d\xe9j\xe0 vu\n".encode("latin-1") * 2000


def socket_called(name: str) -> Callable[[Path], object]:
    def make(here: Path) -> None:
        folder = os.open(here, os.O_RDONLY)  # the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{folder}/{name}")
        os.close(folder)

    return make


def unreadable(name: str) -> Callable[[Path], object]:
    return lambda here: (here / name).chmod(0)


def text(
    name: str, content: bytes, sentence: str, more: str = "", made: Callable[[Path], object] | None = None
) -> Wrong:
    """A corpus that cannot be trained on."""
    line = f"data=text data.path={{here}}/{name} {more}"
    return Wrong(tuple(line.split()), sentence, files={name: content}, made=made)


def unreadable_within(path: str) -> Wrong:
    """A corpus with a folder in it that cannot be read."""
    files = {"mine/a.txt": SENTENCES, "ours/a.txt": SENTENCES}
    line = ("data=text", f'data.path="{path}"')
    return Wrong(line, " cannot be read: Permission denied", files=files, made=unreadable("mine"))


WRONG_TEXTS = [
    train("data=text", "data.path is missing"),
    train("data=text data.path=", "data.path is missing"),
    train("data=text data.path=~/nowhere.txt", "/nowhere.txt does not exist"),
    train("data=text data.path=/nowhere.txt", "data.path=/nowhere.txt does not exist"),
    train("data=text data.path={root}/conf/pos", "/conf/pos has no text files: expected .txt, .jsonl, .parquet"),
    train("data=text data.path=/dev/zero", "data.path=/dev/zero has no text files"),
    train(f"data=text data.path={'x' * 300}.txt", "x.txt cannot be read: File name too long"),
    train("context=300000", "context=300000 is too long for this corpus: its validation split has only"),
    text("a.txt", b"", "the corpus has no text in its validation split: it is empty, too short to split, or"),
    text("a.txt", b" \n" * 90, "context=256 is too long for this corpus: its validation split has only"),
    text("a.txt", b"\n" * 90, "more than the training text supports: at most", "tokenizer=bpe"),
    text("a.jsonl", RECORD * 30 + RECORD.replace(b"b", b"b" * 9000), "the corpus has no text in its validation split"),
    text("a.txt", LATIN, "a.txt is not UTF-8 text: byte 3 is 0xe9", "tokenizer=bpe"),
    text("a.txt", SENTENCES, "tokenizer.vocab_size=4096 is more than the training text supports", "tokenizer=bpe"),
    text("a.txt", SENTENCES, "a.txt cannot be read: Permission denied", made=unreadable("a.txt")),
    text("a.jsonl", b'{"text": "a"}\n{"text": \n', "a.jsonl line 2 is not JSON"),
    text("a.jsonl", b"[" * 100_000, "a.jsonl line 1 is not JSON: maximum recursion depth exceeded"),
    text("a.jsonl", b'{"txt": "a"}\n', "a.jsonl line 1 has no text under the key data.field=text"),
    text("a.jsonl", b'{"text": "caf\xe9"}\n', "a.jsonl line 1 is not UTF-8 text"),
    text("a.jsonl", b'{"text": "\\ud800"}\n', "a.jsonl line 1 contains an unpaired surrogate"),
    text(
        "a.jsonl", b'{"text": "a\\u0000b"}\n', "a.jsonl line 1 contains a NUL character, which would end the document"
    ),
    text("a.txt.gz", gzip.compress(os.urandom(9999))[:5000], "a.txt.gz cannot be read: Compressed file ended before"),
    text("a.txt.gz", SENTENCES, "a.txt.gz cannot be read: Not a gzipped file"),
    text("a.txt.gz", gzip.compress(b"")[:10] + b"\xff" * 20, "a.txt.gz cannot be read: Error -3 while"),
    text("a.txt.xz", lzma.compress(os.urandom(9999))[:5000], "a.txt.xz cannot be read: Compressed file ended before"),
    text("a.parquet", b"PAR1 and no more PAR1", "a.parquet cannot be read"),
    text("b.parquet/a.txt.bz2", b"", "b.parquet/a.txt.bz2 has no text files"),
    Wrong(("data=text", "data.path={here}/a.txt"), "a.txt has no text files", made=socket_called("a.txt")),
    Wrong(
        ("data=text", "data.path={here}/a.txt"),
        "/a.txt cannot be read: Too many levels of symbolic links",
        made=lambda here: (here / "a.txt").symlink_to("a.txt"),
    ),
    Wrong(
        ("data=enwik8", "data.path=mine", "cache=mine/cache"),
        "cache=mine/cache is inside data.path, and would change that text: set another cache=",
        files={"mine/a.txt": SENTENCES},
    ),
    text(
        "mine/a.txt",
        SENTENCES,
        "runs=runs is inside data.path, and would change that text: set another runs=",
        "data.path=.",
    ),
    Wrong(
        ("data=text", 'data.path="mine/**/*.txt"', "runs=mine/runs"),
        "runs=mine/runs is inside data.path, and would change that text: set another runs=",
        files={"mine/a.txt": SENTENCES},
    ),
    Wrong(
        ("data=text", "data.path={here}"),
        "/b.txt cannot be read: No such file or directory",
        files={"a.txt": SENTENCES},
        made=lambda here: (here / "b.txt").symlink_to("nowhere"),
    ),
    Wrong(("data=text", "data.path={here}"), "has no text files", made=lambda here: (here / "here").symlink_to(here)),
    unreadable_within("{here}"),
    unreadable_within("{here}/*/*.txt"),
    unreadable_within("{here}/**/a.txt"),
    train("data=fineweb_edu data.limit=-1", "data.limit=-1 must be an integer at least 1 or null"),
    train("data=enwik8", "data.path=LTCB/enwik8 cannot be loaded"),
    train("data=enwik8 data.path=~nobody/x", "data.path=~nobody/x cannot be loaded"),
]
