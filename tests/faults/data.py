"""Caches: many builders at once, builders killed, caches damaged, disks that are full."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.conftest import ROOT, clean_environment
from tests.faults.damage import Damage, cut_short, flip_a_bit
from tests.faults.limits import can_mount, small_disk
from tests.faults.outcome import Outcome

BUILDER = """
import sys, zlib
from pathlib import Path
from posenc.config.command_line import one_sentence_errors
from posenc.data.corpora import TextFiles
from posenc.data.prepare import prepare
from posenc.data.tokenizers import BytePairs, Bytes
text, cache, vocabulary = sys.argv[1:]
with one_sentence_errors():
    tokenizer = BytePairs(int(vocabulary)) if int(vocabulary) else Bytes()
    prepared = prepare(TextFiles(text), tokenizer, Path(cache), "text", 64, 65)
    print("got", [(len(part), zlib.crc32(part.ids)) for part in (prepared.train, prepared.valid)])
"""
BYTES, PAIRS = 0, 290
"""Vocabularies: of bytes, and of byte pairs."""

WORDS = ("in", "the", "beginning", "god", "created", "heaven", "and", "earth", "without", "form", "void", "darkness")


def write_text(file: Path, megabytes: float) -> None:
    """Lines of words drawn at random."""
    draw = random.Random(0)
    lines = (" ".join(draw.choices(WORDS, k=12)) + ".\n" for _ in range(int(megabytes * 15_000)))
    file.write_text("".join(lines))


def begin(text: Path, cache: Path, vocabulary: int) -> "subprocess.Popen[str]":
    """A process that opens the cache of a text, or builds it."""
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(text), str(cache), str(vocabulary)],
        cwd=ROOT,
        env={**clean_environment(), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(builders: Sequence["subprocess.Popen[str]"]) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each."""
    said = [builder.communicate(timeout=240) for builder in builders]
    return [(builder.returncode, out, err) for builder, (out, err) in zip(builders, said, strict=True)]


def tokens(out: str) -> str:
    """What a builder said it got; nothing if it failed."""
    return out.partition("got ")[2]


def sound(cache: Path) -> bool:
    """Whether nothing is in a cache but whole folders."""
    held = {file.name for folder in cache.iterdir() for file in (folder.iterdir() if folder.is_dir() else [folder])}
    return held <= {"tokens.bin", "meta.json", "tokenizer.json"}


def build_once(text: Path, cache: Path, vocabulary: int, count: int = 8) -> bool:
    """Whether processes that start together build one cache, and all get the same tokens."""
    answers = ended([begin(text, cache, vocabulary) for _ in range(count)])
    built = sum(out.count("Cached ") for _, out, _ in answers)
    trained = sum(out.count("Training a tokenizer") for _, out, _ in answers)
    same = len({tokens(out) for _, out, _ in answers}) == 1 and not any(code for code, _, _ in answers)
    return same and built == 2 and trained == bool(vocabulary) and sound(cache)


def survive_a_kill(text: Path, cache: Path, vocabulary: int, expected: str) -> bool:
    """Whether a builder killed while it writes leaves what the next cleans up."""
    with begin(text, cache, vocabulary) as builder:
        deadline = time.monotonic() + 60
        while not list(cache.glob("*.partial")) and builder.poll() is None and time.monotonic() < deadline:
            time.sleep(0.0005)
        builder.kill()
    half = list(cache.glob("*.partial"))
    ((code, out, _),) = ended([begin(text, cache, vocabulary)])
    return bool(half) and code == 0 and tokens(out) == expected and sound(cache)


def is_rebuilt(text: Path, cache: Path, harm: Damage, draw: random.Random, expected: str) -> bool:
    """Whether a damaged cache is found out, named, and built again."""
    file = draw.choice(sorted(cache.glob("*/tokens.bin")))
    harm(file, draw)
    ((code, out, err),) = ended([begin(text, cache, BYTES)])
    named = f"The cache {file.parent} is damaged" in err and err.count("\n") == 1
    return code == 0 and named and tokens(out) == expected and sound(cache)


def survives_a_full_disk(text: Path, folder: Path, vocabulary: int, size: str, expected: str) -> bool:
    """Whether a builder says what does not fit, leaves nothing of it, and goes on once there is space."""
    with small_disk(folder, size):
        ((code, _, err),) = ended([begin(text, folder, vocabulary)])
        told = " could not be written: No space left on device\n" in err and err.count("\n") == 1
        clean = sound(folder)
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        ((again, out, _),) = ended([begin(text, folder, vocabulary)])
        return code == 1 and told and clean and again == 0 and tokens(out) == expected and sound(folder)


def outcomes(folder: Path, times: int) -> Iterator[Outcome]:
    """
    Args:
        times: of each.
    """
    folder.mkdir(parents=True)
    text = folder / "text.txt"
    write_text(text, megabytes=4)
    expected = {
        vocabulary: tokens(ended([begin(text, folder / f"whole{vocabulary}", vocabulary)])[0][1])
        for vocabulary in (BYTES, PAIRS)
    }
    kinds = [(BYTES, PAIRS)[number % 2] for number in range(times)]
    together = [build_once(text, folder / f"eight{number}", kind) for number, kind in enumerate(kinds)]
    yield Outcome("eight processes that build one cache", times, sum(together), "nothing: one builds, the others read")
    killed = [survive_a_kill(text, folder / f"kill{number}", kind, expected[kind]) for number, kind in enumerate(kinds)]
    yield Outcome("a process killed while it builds a cache", times, sum(killed), "the build; the next begins it anew")
    for harm, words in ((flip_a_bit, "a cache with a flipped bit"), (cut_short, "a truncated cache")):
        rebuilt = [
            is_rebuilt(text, folder / f"whole{BYTES}", harm, random.Random(number), expected[BYTES])
            for number in range(times)
        ]
        yield Outcome(words, times, sum(rebuilt), "the cache; it is named, and built again")
    if can_mount():
        full = [
            survives_a_full_disk(text, folder / f"disk{number}", kind, f"{20 + 200 * number}k", expected[kind])
            for number, kind in enumerate(kinds)
        ]
        yield Outcome(
            "a disk that is full while caching", times, sum(full), "the build; it goes on when there is space"
        )
