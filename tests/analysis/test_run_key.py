"""What makes two runs the same row."""

import pytest

from posenc.analysis.run_key import BACKBONE, SEARCH, Key, flat_configuration, key_of_overrides, key_of_run
from posenc.errors import UserError
from tests.analysis.synthetic import run

EXPERIMENT = "experiment=claim_map"


def key(*overrides: str, seed: int = 0) -> Key:
    return key_of_overrides(EXPERIMENT, [EXPERIMENT, *overrides, "steps=300", f"seed={seed}"], "text", [100])


def test_own_hyperparameters_have_columns_and_make_no_other_setting():
    of_rope, of_sinusoid = key("pos.base=1000", "optim.lr=0.006"), key("pos=sinusoidal", "pos.scale=0.2")
    assert of_rope.setting == of_sinusoid.setting == BACKBONE
    assert (of_rope.lr, of_rope.scale, of_rope.base) == (0.006, "", "1000")
    assert of_sinusoid.scale == "0.2"


def test_the_tokens_of_a_run_are_those_of_its_batches():
    assert key("context=64", "batch_size=32").tokens == 300 * 32 * 64


@pytest.mark.parametrize(
    "changed",
    [
        "model.width=64",
        "optim.weight_decay=0",
        "eval_windows=4",
        "model/family=palm",
        "model.family.activation=swiglu",
        "attention=linear attention.features=32",
        "intervention=offset_bias intervention.offsets=[2] intervention.strength=4",
    ],
)
def test_whatever_changes_the_loss_is_in_the_setting(changed):
    assert key(*changed.split()).setting == changed


def test_what_changes_no_loss_is_in_no_setting():
    assert key("log_every=5", "eval_every=30").setting == BACKBONE


def test_a_default_of_a_choice_s_own_file_is_not_repeated():
    assert key("intervention=offset_bias").setting == "intervention=offset_bias"


def test_a_trial_names_its_setting_too():
    assert key(seed=100).setting == SEARCH
    assert key("context=64", seed=100).setting == "search context=64"


@pytest.mark.parametrize("override", ["steps=many", "seed=0.5", "optim.lr=high", "batch_size=x", "context=a"])
def test_what_must_be_a_number_and_is_none_is_refused(override):
    with pytest.raises(UserError, match=f"^{override} must be a number here$"):
        key_of_overrides(EXPERIMENT, [EXPERIMENT, override], "text", [])


def test_a_run_has_the_key_of_its_command_line():
    overrides = (EXPERIMENT, "pos=sinusoidal", "model.width=64", "optim.lr=1e-2", "steps=600")
    setting = {**flat_configuration(overrides), "data": "kjv", "text": "0123456789abcdef"}
    read = run("sinusoidal", 0, setting=setting)
    assert key_of_run(EXPERIMENT, read, [100]) == key_of_overrides(EXPERIMENT, overrides, "kjv-01234567", [100])


def test_a_run_of_before_there_were_interventions_has_none():
    setting = {**flat_configuration((EXPERIMENT,)), "data": "kjv", "text": "0123456789abcdef"}
    older = {name: value for name, value in setting.items() if not name.startswith("intervention")}
    keys = [key_of_run(EXPERIMENT, run("rope", 0, setting=one), [100]) for one in (setting, older)]
    assert keys[0] == keys[1]
    assert keys[0].setting == BACKBONE
