"""What others published about the same question, to stand beside what was measured here.

Read in the sources, or digitised from their figures where `digitised` says so.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """One comparison of rotary with another scheme.

    Attributes:
        source: who, where.
        setting: what was trained.
        against: the other scheme.
        level: what was to be reached.
        result: what came out.
        digitised: whether it was measured off a figure.
        unlike: in what it is not like the runs here.
    """

    source: str
    setting: str
    against: str
    level: str
    result: str
    digitised: bool
    unlike: str


_MLM = "masked language modelling, BERT-base, BookCorpus and Wikipedia"
_MLM_UNLIKE = (
    "one seed; training loss; a masked objective; 110M parameters; the text calls the other encoding sinusoidal, "
    "BERT's own is learned"
)
_LINEAR = "linear attention (Performer), 12 layers, characters of Enwik8"
_LINEAR_UNLIKE = "one seed; training loss; linear attention; it is not said what the other arm has for positions"
_ROFORMER = "Su et al. 2021, figure 3"
_ELEUTHER = "EleutherAI 2021, Rotary Embeddings"

PUBLISHED = (
    Published(_ROFORMER, _MLM, "BERT's encoding", "loss 4.0", "1.36x (12.0k against 16.4k steps)", True, _MLM_UNLIKE),
    Published(_ROFORMER, _MLM, "BERT's encoding", "loss 3.0", "1.45x (22.7k against 32.8k steps)", True, _MLM_UNLIKE),
    Published(_ROFORMER, _MLM, "BERT's encoding", "loss 2.5", "1.58x (45.6k against 72.2k steps)", True, _MLM_UNLIKE),
    Published(_ROFORMER, _MLM, "BERT's encoding", "its last loss", "2.2x (114k against 250k steps)", True, _MLM_UNLIKE),
    Published(_ROFORMER, _LINEAR, "not said", "loss 1.5", "1.54x (21.8k against 33.5k steps)", True, _LINEAR_UNLIKE),
    Published(_ROFORMER, _LINEAR, "not said", "its last loss", "2.2x (43k against 96k steps)", True, _LINEAR_UNLIKE),
    Published(
        _ELEUTHER, "causal, 125M, OpenWebText2, 55k steps", "learned", "loss 3.0", "1.32x (10.4k against 13.7k steps)",
        True, "one seed; 125M parameters; pieces of words, not bytes",
    ),
    Published(
        _ELEUTHER, "causal, 1.4B, the Pile, 8k steps", "learned", "its last loss", "27 to 30 % fewer steps",
        True, "one seed; 1.4B parameters; pieces of words, not bytes",
    ),
    Published(
        "Press et al. 2021 (ALiBi)", "causal, 247M, WikiText-103, 205 epochs", "sinusoidal", "at convergence",
        "none: perplexity 20.07 against 20.05", False, "trained until nothing more was to be gained",
    ),
)  # fmt: skip
