"""The configuration files compose, instantiate and take a step, and name a run by what makes its curve."""

import functools
import re
from math import prod
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from posenc.config.instantiate import build, build_model
from posenc.config.schema import check, check_settings, identity
from posenc.errors import UserError
from posenc.objectives.objective import Causal, loss
from posenc.storage.reading import leaves
from tests.conftest import CONF, composed

SCHEMES = sorted(file.stem for file in (CONF / "pos").iterdir())
EXPERIMENTS = sorted(file.stem for file in (CONF / "experiment").iterdir())
SWEEPS = sorted(file.stem for file in (CONF / "sweep").iterdir())
FAMILIES = sorted(file.stem for file in (CONF / "model" / "family").iterdir())
REFUSED = {
    *((scheme, "attention=linear") for scheme in ("alibi", "t5", "fox", "kerple", "fire", "cope", "pope", "xpos")),
    *((scheme, "objective=masked") for scheme in ("xpos", "fox", "fire", "cope")),
}
"""Schemes that have no meaning there, and are told so."""


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("seed", 2**32, f"seed={2**32} must be at least 0 and below {2**32}"),
        ("steps", "20", "steps=20 must be an integer"),
        ("eval_windows", -1, "eval_windows=-1 must be at least 1"),
        ("eval_windows", None, "eval_windows is missing"),
        ("context", True, "context=True must be an integer"),
    ],
)
def test_the_settings_of_a_stored_configuration_are_checked_like_those_of_a_command(key, value, sentence):
    keys = ("seed", "steps", "context", "eval_windows")
    config = {"seed": 0, "steps": 20, "context": 16, "eval_windows": 4, "unknown": None}
    check_settings(config, keys)
    changed = {**config, key: value} if value is not None else {name: config[name] for name in keys if name != key}
    with pytest.raises(UserError, match=re.escape(sentence)):
        check_settings(changed, keys)


def test_heads_are_measured_at_validations():
    """Else a run could not be resumed: it lacks rows."""
    with pytest.raises(UserError, match="^attention_every=15 must be a multiple of eval_every=10$"):
        check(composed("attention_every=15"))


def test_a_folder_of_a_file_names_no_home():
    """The command line expands ~; a file's would become a folder of that name."""
    with pytest.raises(UserError, match="^runs='~/runs': spell out the home folder$"):
        check(composed("runs='~/runs'"))


SMALL = ("context=16", "model.layers=1", "model.width=64", "model.heads=4", "batch_size=2")
PARAMETERS = {
    "0": 0, "T D": 16 * 64, "Dh/2": 8, "H Dh": 64, "32 H": 128, "2 H": 8, "33 H + 66": 198,
    "H (D + 1) per layer": 4 * 65, "64 Dh per layer": 64 * 16,
}  # fmt: skip
"""Of the schemes in docs/schemes.md, with the sizes of SMALL: T = 16, D = 64, H = 4, Dh = 16, one layer."""


def test_every_scheme_has_its_row_in_the_documentation_with_its_parameters():
    text = (CONF.parent / "docs" / "schemes.md").read_text().partition("## Loss and cost")[0]
    table = (line.strip("|").split("|") for line in text.splitlines() if line.startswith("| `"))
    _, *rows = ([cell.strip() for cell in row] for row in table)
    names = [row[0].strip("`") for row in rows]
    variants = [name for row in rows for name in re.findall(r"`(\w+)`", row[1])]
    assert sorted([*names, *variants]) == SCHEMES
    swept = OmegaConf.load(CONF / "experiment" / "schemes.yaml").hydra.sweeper.params.pos
    assert sorted(swept.replace(" ", "").split(",")) == sorted(names)
    for name, row in zip(names, rows, strict=True):
        scheme = build(composed(f"pos={name}", *SMALL), "pos")
        assert sum(weight.numel() for weight in scheme.parameters()) == PARAMETERS[row[3]], name


@pytest.mark.parametrize(("size", "digits"), [("tiny", 1), ("small", 0), ("base", 0)])
def test_the_sizes_over_bytes_are_those_in_the_readme(size, digits):
    with torch.device("meta"):
        model = build_model(composed(f"model={size}", "pos=none"), Causal(256))
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    assert f"{size} ({millions:.{digits}f}M)" in (CONF.parent / "README.md").read_text()


def losses_of_a_few_steps(config: dict) -> list[float]:
    check(config)
    objective, optim = build(config, "objective", vocab_size=256), build(config, "optim")
    model = build_model(config, objective)
    optimiser = optim.build(model)
    for group in optimiser.param_groups:
        group["lr"] = 0.01
    draw = torch.Generator().manual_seed(0)
    window = torch.randint(256, (2, 16 + objective.lookahead), generator=draw)
    inputs, targets = objective.inputs_and_targets(window, torch.rand(*window.shape, 2, generator=draw))
    losses = []
    for _ in range(3):
        step = loss(model(inputs), targets)
        step.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(step.item())
    return losses


def takes_a_training_step(config: dict[str, Any]) -> None:
    losses = losses_of_a_few_steps(config)
    assert losses[2] < losses[0]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_takes_a_training_step(experiment):
    takes_a_training_step(composed(f"experiment={experiment}", *SMALL))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("choice", ["objective=masked", "attention=linear"])
def test_every_scheme_takes_a_training_step_or_is_refused_where_it_has_no_meaning(scheme, choice):
    config = composed(f"pos={scheme}", choice, *SMALL)
    if (scheme, choice) in REFUSED:
        with pytest.raises(UserError, match="or another pos or intervention"):
            losses_of_a_few_steps(config)
    else:
        takes_a_training_step(config)


@pytest.mark.parametrize(
    ("family", "scheme"),
    [
        *((family, "rope") for family in FAMILIES),
        *(("llama2", scheme) for scheme in SCHEMES if scheme != "rope"),
        *(("palm", scheme) for scheme in ("learned", "t5", "fox", "cope", "pope")),
    ],
)
def test_every_family_and_every_scheme_take_a_training_step(family, scheme):
    """Heads in groups are where the two meet: llama2 has a key for two query heads, palm one for all."""
    # A scheme's file does not look at the family: both are composed once, which takes longer than the steps.
    model = composed(f"model/family={family}", *SMALL)["model"]
    takes_a_training_step({**composed(f"pos={scheme}", *SMALL), "model": model})


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_fills_in_masked_tokens(family):
    takes_a_training_step(composed("pos=rope", f"model/family={family}", "objective=masked", *SMALL))


@pytest.mark.parametrize("intervention", sorted(file.stem for file in (CONF / "intervention").glob("*.yaml")))
def test_every_intervention_takes_a_training_step(intervention):
    scheme = "rope" if intervention == "only_layers" else "sinusoidal"
    takes_a_training_step(composed(f"pos={scheme}", f"intervention={intervention}", *SMALL))


@pytest.mark.parametrize("intervention", ["key_shift", "encoding_in_qk", "offset_bias"])
def test_an_intervention_that_is_no_rotation_is_refused_by_linear_attention(intervention):
    with pytest.raises(UserError, match="linear attention supports only schemes that rotate queries and keys"):
        losses_of_a_few_steps(composed("pos=rope", f"intervention={intervention}", "attention=linear", *SMALL))


@pytest.mark.parametrize(
    ("scheme", "promised"),
    [
        ("rope_partial", {"_target_": "posenc.positions.Rotary", "fraction": 0.25, "base": 10_000.0}),
        ("rope_half_truncated", {"fraction": 0.5, "base": 1024.0}),
        ("rope_truncated", {"_target_": "posenc.positions.Truncated", "kept": 0.75}),
        ("nope_hybrid", {"_target_": "posenc.positions.NopeHybrid", "every": 4}),
        ("rope_bounded", {"_target_": "posenc.positions.Bounded", "longest": 512, "base": 10_000.0}),
        ("xpos", {"_target_": "posenc.positions.Xpos", "gamma": 0.4, "scale_base": 512.0, "fraction": 1.0}),
    ],
)
def test_a_variant_of_rope_is_rope_but_for_what_its_file_says(scheme, promised):
    assert composed("context=512", f"pos={scheme}")["pos"] == {**composed("pos=rope")["pos"], **promised}


@pytest.mark.parametrize(
    ("scheme", "promised"),
    [
        ("none", {}),
        ("learned", {"context": 256, "width": 128, "scale": "matched"}),
        ("t5", {"heads": 4, "head_dim": 32, "buckets": 32, "max_distance": 128, "bidirectional": False}),
        ("alibi", {"heads": 4}),
        ("kerple", {"heads": 4}),
        ("fire", {"heads": 4, "hidden": 32, "c": 0.1, "threshold": 512.0}),
        ("fox", {"width": 128, "heads": 4, "layers": 4}),
        ("cope", {"head_dim": 32, "layers": 4, "longest": 64}),
        ("pope", {"heads": 4, "head_dim": 32, "base": 10_000.0}),
        ("rope", {"head_dim": 32, "fraction": 1.0, "base": 10_000.0, "layout": "half"}),
    ],
)
def test_a_scheme_has_the_hyperparameters_of_its_paper_by_default(scheme, promised):
    assert {**composed(f"pos={scheme}")["pos"], "_target_": ""} == {**promised, "_target_": ""}


def test_the_sinusoids_differ_in_amplitude_and_one_in_the_scale_of_the_token_embeddings():
    promised: dict[str, dict[str, object]] = {
        "sinusoidal": {"scale": 0.1},
        "sinusoidal_matched": {"scale": "matched"},
        "sinusoidal_raw": {"scale": 1.0},
        "sinusoidal_vaswani": {"scale": 1.0, "tokens": "sqrt_width"},
    }
    assert [name for name in SCHEMES if name.startswith("sinusoidal")] == list(promised)
    for name, own in promised.items():
        shared: dict[str, object] = {"_target_": "posenc.positions.Sinusoidal", "width": 128, "base": 10_000.0}
        assert composed(f"pos={name}")["pos"] == shared | own, name


@pytest.mark.parametrize(("objective", "expected"), [("causal", False), ("masked", True)])
def test_t5_tells_the_directions_apart_where_the_objective_reads_both_ways(objective, expected):
    assert composed("pos=t5", f"objective={objective}")["pos"]["bidirectional"] is expected


@pytest.mark.parametrize("data", sorted(file.stem for file in (CONF / "data").iterdir()))
def test_every_corpus_composes_and_fits_its_constructor(data):
    config = composed(f"data={data}")
    check(config)
    if data != "text":
        assert len(build(config, "data").fingerprint()) == 16


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_opens_with_its_command(experiment):
    text = (CONF / "experiment" / f"{experiment}.yaml").read_text()
    assert text.startswith("# @package _global_\n# ")
    assert "#   python train.py" in text


def choices_of(sweep: str) -> list[list[str]]:
    """The overrides of `python train.py -m +sweep=...`, a list for each key."""
    params = OmegaConf.load(CONF / "sweep" / f"{sweep}.yaml").hydra.sweeper.params
    return [[f"{key}={value}" for value in str(values).split(",")] for key, values in params.items()]


@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_value_of_every_sweep_takes_a_training_step(sweep):
    choices = choices_of(sweep)
    for number in range(max(map(len, choices))):
        job = [overrides[number % len(overrides)] for overrides in choices]
        config = composed(f"+sweep={sweep}", *SMALL, *job)
        assert config["name"] == sweep
        takes_a_training_step(config)


@pytest.mark.parametrize("sweep", SWEEPS)
def test_every_sweep_opens_with_its_command_and_says_how_many_runs_it_has(sweep):
    text = (CONF / "sweep" / f"{sweep}.yaml").read_text()
    assert text.startswith("# @package _global_\n# ")
    assert f"#   python train.py -m +sweep={sweep}" in text
    assert f"# {prod(map(len, choices_of(sweep)))} runs" in text


def test_every_file_opens_with_a_comment():
    for file in CONF.rglob("*.yaml"):
        assert file.read_text().startswith("#"), f"{file} does not say what it is"


@pytest.mark.parametrize(
    ("integer", "decimal"), [("pos.base=10000", "pos.base=10000.0"), ("optim.clip=1", "optim.clip=1e0")]
)
def test_a_number_names_the_run_however_it_is_written(integer, decimal):
    assert identity(composed(integer), "text", "32-true") == identity(composed(decimal), "text", "32-true")


FREE = {"name", "rerun", "fork_from", "runs", "cache", "logger", "checkpoint_seconds", "trainer", "data"}
"""What does not make the curve; the text and the precision name a run by themselves."""


@pytest.mark.parametrize("path", [path for path, _ in leaves(composed())])
def test_every_value_names_the_run_but_those_that_do_not_make_its_curve(path):
    changed = composed()
    *groups, last = path.split(".")
    place = functools.reduce(lambda tree, group: tree[group], groups, changed)
    place[last] = f"{place[last]} changed"
    same = identity(changed, "text", "32-true") == identity(composed(), "text", "32-true")
    assert same == (path.split(".")[0] in FREE)


def test_the_text_and_the_precision_in_use_name_the_run():
    names = {identity(composed(), text, precision) for text in "ab" for precision in ("32-true", "bf16-mixed")}
    assert len(names) == 4


def test_the_composed_configuration_holds_no_unresolved_value():
    assert "???" not in OmegaConf.to_yaml(OmegaConf.create(composed()))


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/me/My book.txt.gz", "My_book"),
        ("\u4e66" * 70 + ".txt", "\u4e66" * 66),  # three bytes each
        ("corpus/", "corpus"),
        ("texts/*.txt", "texts"),
        ("*", "kjv_tiny"),
        ("\u4e66.txt", "\u4e66"),
        (f"{'x' * 300}.txt", "x" * 100),
        ("2024", "2024"),
    ],
)
def test_runs_on_a_text_of_ones_own_are_called_as_the_text(path, name):
    config = composed("data=text", f"data.path='{path}'")
    assert config["name"] == name
    assert composed("data=text", f"data.path='{path}'", "experiment=text_small")["name"] == "text_small"


def test_runs_are_named_after_the_experiment_or_the_corpus():
    assert composed()["name"] == "kjv_tiny"
    assert composed("data=enwik8")["name"] == "enwik8"
