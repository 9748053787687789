"""What config.json says beside what the logits show, and what each architecture cannot do; see also test_export.py."""

import pytest

from posenc.config.instantiate import build, build_model
from posenc.errors import UserError
from posenc.evaluation.huggingface import convert
from posenc.evaluation.load import Trained
from tests.conftest import composed

SMALL = ("experiment=smoke", "model.layers=1", "model.width=48", "model.heads=4", "context=32")


def trained(overrides: str) -> Trained:
    config = composed(*SMALL, *overrides.split())
    tokenizer = build(config, "tokenizer")
    objective = build(config, "objective", vocab_size=tokenizer.vocab_size)
    return Trained(build_model(config, objective), objective, tokenizer, config)


@pytest.mark.parametrize(
    ("overrides", "needed"),
    [
        ("pos=alibi", "GPT-2 needs pos=learned or sinusoidal or none; Llama needs pos=rope, model.family.norm=rms, "),
        ("pos=rope objective=masked", "GPT-NeoX needs objective=causal;"),
        ("pos=rope attention=linear", "GPT-NeoX needs attention=softmax;"),
        ("pos=sinusoidal_vaswani", "GPT-2 needs pos.tokens=1.0;"),
        ("pos=rope_partial pos.layout=interleaved model.heads=2", "GPT-NeoX needs pos.layout=half;"),
        ("pos=rope intervention=smear", "GPT-NeoX needs intervention=none;"),
        ("pos=nope_hybrid", "GPT-NeoX needs pos=rope;"),
        ("pos=learned model/family=gpt2 model.family.parallel=true", "GPT-2 needs model.family.parallel=False;"),
        ("pos=learned model/family=gpt2 model.family.queries_per_key=2", "GPT-2 needs model.family.queries_per_key=1;"),
        ("pos=learned model/family=gpt2 model.family.norm=rms", "GPT-2 needs model.family.norm=layer or bare;"),
        (
            "pos=learned model/family=gpt2 model.family.activation=swiglu",
            "needs model.family.activation=gelu or gelu_tanh;",
        ),
        ("pos=rope model/family=llama2 pos.fraction=0.5", "Llama needs pos.fraction=1.0;"),
        ("pos=rope model/family=llama2 model.family.parallel=true", "Llama needs model.family.parallel=False;"),
        ("pos=rope model/family=plain model.family.norm=rms", "GPT-NeoX needs model.family.norm=layer or bare"),
        ("pos=rope model/family=plain model.family.queries_per_key=2", "GPT-NeoX needs model.family.queries_per_key=1"),
    ],
)
def test_one_property_that_an_architecture_lacks_is_enough_to_refuse_it(overrides, needed):
    with pytest.raises(UserError, match="^no architecture of transformers matches this model") as said:
        convert(trained(overrides))
    assert needed in f"{said.value};"


@pytest.mark.parametrize(
    ("overrides", "fraction"),
    [("model/family=llama2", 1.0), ("model/family=plain", 1.0), ("model/family=plain pos.fraction=0.5", 0.5)],
)
def test_every_version_of_transformers_finds_the_rotation_under_its_own_name(overrides, fraction):
    config, _ = convert(trained(f"pos=rope pos.base=500.0 {overrides}"))
    assert config["rope_parameters"] == {
        "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": fraction
    }  # fmt: skip
    own = {"rope_theta": 500.0} if "llama2" in overrides else {"rotary_emb_base": 500.0, "rotary_pct": fraction}
    assert {name: config[name] for name in own} == own


@pytest.mark.parametrize("left_out", ["pos.base pos.layout", "model.family.tied model.family.parallel", "model/family"])
def test_a_key_that_a_configuration_leaves_to_its_class_has_that_default(left_out):
    without = " ".join(f"~{key}" for key in left_out.split())
    config, _ = convert(trained(f"pos=rope model/family=plain {without}"))
    assert (config["rotary_emb_base"], config["tie_word_embeddings"]) == (10_000, True)


def test_transformers_rounds_the_rotated_channels_down_to_ours():
    config, _ = convert(trained("pos=rope model.width=176 model.heads=4 pos.fraction=0.68 model/family=plain"))
    assert int(44 * config["rotary_pct"]) == 30


@pytest.mark.parametrize("overrides", ["pos=learned model/family=gpt2", "pos=rope model/family=llama2", "pos=rope"])
def test_generation_ends_with_the_context_and_at_no_byte(overrides):
    config, _ = convert(trained(overrides))
    assert config.get("n_positions", config.get("max_position_embeddings")) == 32
    assert (config["bos_token_id"], config["eos_token_id"]) == (None, None)
    assert config["vocab_size"] == 256
