"""Tokenizers."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
from annotated_types import Gt, Lt

from posenc.data.readers import END, character_from
from posenc.errors import UserError, first_line, needed_for
from posenc.storage.atomic import atomic_write
from posenc.storage.reading import read_text

FILE = "tokenizer.json"

MAX_BYTES = 2**28
"""Maximum size of that file; 2**20 tokens need about 2**26."""

IN_PARALLEL = 128
"""Pieces of text that are encoded in parallel."""

PIECE = 1 << 15
"""Bytes in a piece of text, at least; twice as many at most."""

TRAINED_ON = 1 << 15
"""Maximum number of pieces, 1 to 2 GiB, from which merges are learned: memory grows with the distinct words."""


class Tokenizer(Protocol):
    """The interface of tokenizers. Every token stands for a known number of bytes.

    Attributes:
        vocab_size: V.
        name: used in the names of cache folders.
    """

    vocab_size: int

    @property
    def name(self) -> str: ...

    def fingerprint(self) -> str:
        """Identifies the mapping from text to tokens, after training."""
        ...

    def train(self, text: Iterable[bytes]) -> None:
        """Train the vocabulary on the training split."""
        ...

    def check(self, folder: Path) -> None:
        """Check that a folder, such as that of a run to resume, has no other trained vocabulary.

        Raises:
            UserError: if it has.
        """
        ...

    def save(self, folder: Path) -> None:
        """Write the trained vocabulary, if any, to FILE in a folder."""
        ...

    def load(self, folder: Path) -> None:
        """Read what `save` wrote.

        Raises:
            UserError: if it cannot be read, or has another vocabulary size.
        """
        ...

    def encode(self, text: Iterable[bytes]) -> Iterator[np.ndarray]:
        """Chunks of text -> chunks of token ids, each (N,) in `smallest_dtype`."""
        ...

    def decode(self, tokens: Iterable[int]) -> str: ...

    def byte_lengths(self) -> np.ndarray:
        """Length in bytes of each token: (V,) int64."""
        ...

    def to_json(self) -> str:
        """The tokenizer in the format of the package `tokenizers`."""
        ...


def smallest_dtype(vocab_size: int) -> np.dtype:
    """The smallest of uint8, uint16 and uint32 that holds every token id."""
    return np.min_scalar_type(vocab_size - 1)


class Bytes:
    """One token per byte."""

    vocab_size = 256
    name = "bytes"

    def fingerprint(self) -> str:
        return self.name

    def train(self, text: Iterable[bytes]) -> None:
        """Nothing to train."""

    def check(self, folder: Path) -> None:
        """Nothing to check."""

    def save(self, folder: Path) -> None:
        """Nothing to save."""

    def load(self, folder: Path) -> None:
        """Nothing to load."""

    def encode(self, text: Iterable[bytes]) -> Iterator[np.ndarray]:
        return (np.frombuffer(chunk, dtype=np.uint8) for chunk in text)

    def decode(self, tokens: Iterable[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    def byte_lengths(self) -> np.ndarray:
        return np.ones(256, dtype=np.int64)

    def to_json(self) -> str:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        # Printable bytes map to themselves; the others, in order, to characters from 256 on.
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        others = [byte for byte in range(256) if chr(byte) not in alphabet]
        ids = {name: ord(name) if ord(name) < 256 else others[ord(name) - 256] for name in alphabet}
        tokenizer = Tokenizer(models.BPE(ids, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer.to_str()


class BytePairs:
    """Byte-level byte-pair encoding (Sennrich et al. 2016; over bytes as in GPT-2), trained on the training split.

    Args:
        vocab_size: V: 256 bytes, END, and at least one merge; token ids fit into 32 bits.

    Raises:
        UserError: if the package `tokenizers` is not installed.
    """

    def __init__(self, vocab_size: Annotated[int, Gt(257), Lt(2**32)] = 4096) -> None:
        with needed_for("tokenizer=bpe"):
            import tokenizers  # noqa: F401
        self.vocab_size = vocab_size
        self._tokenizer: Any = None

    @property
    def name(self) -> str:
        return f"bpe{self.vocab_size}"

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{PIECE} {self._tokenizer.to_str()}".encode()).hexdigest()

    def train(self, text: Iterable[bytes]) -> None:
        """Train the merges.

        Raises:
            UserError: if the text is too short for the vocabulary size.
        """
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            special_tokens=[END.decode()],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        pieces = itertools.islice(_pieces(text), TRAINED_ON)
        documents = (part for piece in pieces for part in piece.split(END.decode()))  # no merge contains END
        tokenizer.train_from_iterator(documents, trainer)
        if tokenizer.get_vocab_size() < self.vocab_size:
            raise UserError(
                f"tokenizer.vocab_size={self.vocab_size} is more than the training text supports: "
                f"at most {tokenizer.get_vocab_size()}"
            )
        self._tokenizer = tokenizer

    def check(self, folder: Path) -> None:
        if not (folder / FILE).exists():
            return
        theirs = BytePairs(self.vocab_size)
        theirs.load(folder)
        if theirs.fingerprint() != self.fingerprint():
            raise UserError(f"{folder / FILE} differs from the vocabulary of the cached tokens: restore that cache")

    def save(self, folder: Path) -> None:
        atomic_write(folder / FILE, self.to_json())

    def load(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        file = folder / FILE
        text = read_text(file, MAX_BYTES)
        try:
            read = Tokenizer.from_str(text)
        except Exception as error:  # the package raises bare Exception
            raise UserError(f"{file} cannot be read: {first_line(error)}") from error
        if sorted(read.get_vocab().values()) != [*range(self.vocab_size)]:
            raise UserError(f"{file} cannot be read: its tokens are not numbered from 0 to {self.vocab_size - 1}")
        self._tokenizer = read

    def encode(self, text: Iterable[bytes]) -> Iterator[np.ndarray]:
        dtype = smallest_dtype(self.vocab_size)
        pieces = _pieces(text)
        while batch := list(itertools.islice(pieces, IN_PARALLEL)):
            encoded = self._tokenizer.encode_batch_fast(batch)
            yield np.concatenate([np.array(piece.ids, dtype=dtype) for piece in encoded])

    def decode(self, tokens: Iterable[int]) -> str:
        return self._tokenizer.decode(list(tokens), skip_special_tokens=False)

    def byte_lengths(self) -> np.ndarray:
        # In byte-level BPE each character of a token stands for one byte; END is one byte, too.
        return np.array([len(self._tokenizer.id_to_token(token)) for token in range(self.vocab_size)])

    def to_json(self) -> str:
        return self._tokenizer.to_str()


def _pieces(text: Iterable[bytes]) -> Iterator[str]:
    """Chunks of text -> pieces, whose borders follow from the text alone, not from its chunks: a token ends at each."""
    left = bytearray()
    for chunk in text:
        left += chunk
        while len(left) > 2 * PIECE:
            end = _end_of_piece(left)
            yield left[:end].decode()
            del left[:end]
    if left:
        yield left.decode()


def _end_of_piece(text: bytearray) -> int:
    """After a document or a line, else before a word, else between two characters."""
    for mark, length in ((END, 1), (b"\n", 1), (b" ", 0)):
        found = text.find(mark, PIECE, 2 * PIECE)
        if found >= 0:
            return found + length
    return character_from(text, PIECE)
