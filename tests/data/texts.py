"""The same documents in every format that is read."""

import json
from pathlib import Path

from posenc.data.corpora import SPLITS

DOCUMENTS = [f"Document {number}: été, 東京 and plain words.\nSecond line." for number in range(200)]


def write_txt(folder: Path) -> Path:
    file = folder / "a.txt"
    file.write_text("".join(f"{text}\n<|end|>\n" for text in DOCUMENTS))
    return file


def write_jsonl(folder: Path) -> Path:
    file = folder / "a.jsonl"
    file.write_text("".join(json.dumps({"text": text + "\n"}) + "\n" for text in DOCUMENTS))
    return file


def write_parquet(folder: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    file = folder / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": [text + "\n" for text in DOCUMENTS]}), file)
    return file


def everything(corpus) -> bytes:
    return b"".join(piece for split in SPLITS for piece in corpus.stream(split))


EXPECTED = "".join(f"{text}\n\0" for text in DOCUMENTS).encode()
