"""The validation text of a finished run."""

from pathlib import Path

from posenc.config.instantiate import build
from posenc.config.schema import check_groups
from posenc.data.cache import Tokens
from posenc.data.prepare import open_split
from posenc.errors import UserError
from posenc.evaluation.load import Trained


def validation_text(trained: Trained, cache: Path) -> Tokens:
    """The tokens of the validation split of a run's text.

    Args:
        trained: the run; its configuration may be untrusted.
        cache: the user's cache folder, not that of the configuration.

    Raises:
        UserError: if the text cannot be read, or has changed.
    """
    config = trained.config
    check_groups(config, ["data"])
    corpus = build(config, "data")
    if corpus.fingerprint() != config.get("text"):
        raise UserError("its text has changed since it was trained")
    return open_split(corpus, trained.tokenizer, cache, str(config["choices"].get("data")), "valid")
