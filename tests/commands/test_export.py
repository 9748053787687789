"""What `posenc export` writes is loaded by transformers, and has the same logits."""

import os

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from posenc.commands import sample
from posenc.commands.export import export, main
from posenc.config.instantiate import build, build_model
from posenc.errors import RunError
from posenc.evaluation.load import Trained, newest_run
from posenc.storage import checkpoint_files
from posenc.storage.atomic import atomic_write
from posenc.training.checkpoint_io import CheckpointIO
from tests.conftest import composed

SMALL = ("experiment=smoke", "model.width=48", "model.heads=4", "context=32")

EXPORTED = {
    "pos=learned model/family=gpt2": "GPT2",
    "pos=learned pos.scale=learned": "GPT2",
    "pos=sinusoidal model/family=plain": "GPT2",
    "pos=none model.family.tied=false model.family.norm=bare": "GPT2",
    "pos=rope model/family=llama2": "Llama",
    "pos=rope pos.layout=interleaved pos.base=500 model/family=llama2 model.family.bias=all": "Llama",
    "pos=rope model/family=plain": "GPTNeoX",
    "pos=rope pos.layout=interleaved model/family=gpt2 model.family.tied=false": "GPTNeoX",
    "pos=rope pos.fraction=0.35 model.heads=3": "GPTNeoX",
    "pos=rope_partial model.heads=2 model.family.parallel=true model.family.bias=norm": "GPTNeoX",
}


def trained(*overrides):
    """A model all of whose weights differ from those of a fresh one, so that a bias of 0 hides nothing."""
    config = composed(*SMALL, *overrides)
    tokenizer = build(config, "tokenizer")
    objective = build(config, "objective", vocab_size=tokenizer.vocab_size)
    model = build_model(config, objective)
    torch.manual_seed(1)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, mean=float(weight.ndim == 1), std=0.2)
    return Trained(model, objective, tokenizer, config)


@pytest.fixture
def as_run(tmp_path, monkeypatch):
    """Makes `posenc export` take a model for that of a run."""

    def run(model):
        monkeypatch.setattr("posenc.commands.export.load", lambda _: model)
        return tmp_path / "run"

    return run


@pytest.mark.parametrize("overrides", EXPORTED)
@torch.no_grad()
def test_transformers_loads_it_with_the_same_logits(overrides, tmp_path, as_run):
    ours = trained(*overrides.split())
    folder = export(as_run(ours), tmp_path / "hf")
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    assert type(theirs).__name__.startswith(EXPORTED[overrides])
    tokens = torch.randint(256, (2, 32), generator=torch.Generator().manual_seed(0))
    logits = ours.model(tokens)
    assert (theirs.eval()(tokens).logits - logits).abs().max() <= 1e-5 * logits.abs().max()
    assert sum(p.numel() for p in theirs.parameters()) >= sum(p.numel() for p in ours.model.parameters())


def test_the_tokenizer_of_bytes_gives_every_byte_its_number_and_the_text_back(tmp_path, as_run):
    tokenizer = AutoTokenizer.from_pretrained(export(as_run(trained("pos=learned")), tmp_path / "hf"))
    text = "In the beginning\n\tGod \u00e9\u4e2d\U0001f600 \x00\x7f'don't  two"
    ids = tokenizer(text)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_the_tokenizer_says_how_long_a_window_is(tmp_path, as_run):
    folder = export(as_run(trained("pos=learned")), tmp_path / "hf")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == 32
    assert tokenizer.model_input_names == ["input_ids", "attention_mask"]  # no token_type_ids, which GPT-2 would add


@pytest.fixture
def runs(tmp_path):
    """Two run directories, the second newer."""
    model = trained("pos=learned")
    for seed in (0, 1):
        run = tmp_path / "runs" / "learned" / f"seed{seed}-0"
        (run / "checkpoints").mkdir(parents=True)
        (run / "config.yaml").write_text(yaml.safe_dump({**model.config, "seed": seed}))
        os.utime(run / "config.yaml", (seed, seed))
        weights = {f"model.{name}": weight + seed for name, weight in model.model.state_dict().items()}
        state = {"configuration": {}, "state_dict": weights}
        CheckpointIO().save_checkpoint(state, run / "checkpoints" / checkpoint_files.stem(20))
    return tmp_path / "runs" / "learned"


def test_a_run_is_exported_into_its_directory_and_never_over_another_model(runs, capsys):
    run = runs / "seed0-0"
    main([str(run), "--to", "hf"])
    assert capsys.readouterr().out == f"Written to {run}/hf: AutoModelForCausalLM.from_pretrained('{run}/hf')\n"
    theirs = AutoModelForCausalLM.from_pretrained(run / "hf").state_dict()
    weights = checkpoint_files.load(checkpoint_files.newest_first(run / "checkpoints")[0])["state_dict"]
    assert torch.equal(theirs["transformer.wpe.weight"], weights["model.scheme.table.weight"])
    with pytest.raises(SystemExit) as refused:
        main([str(run)])
    assert refused.value.code == 2
    assert f"--out={run}/hf already exists" in capsys.readouterr().err


def test_an_export_that_fails_leaves_nothing_and_can_be_repeated(runs, monkeypatch, capsys):
    def full(file, content):
        if file.name == "tokenizer.json":
            raise RunError(f"{file} could not be written: No space left on device")
        atomic_write(file, content)

    run = runs / "seed0-0"
    before = sorted(run.rglob("*"))
    with monkeypatch.context() as patch:
        patch.setattr("posenc.storage.atomic.atomic_write", full)
        with pytest.raises(SystemExit):
            main([str(run)])
    assert "tokenizer.json could not be written" in capsys.readouterr().err
    assert sorted(run.rglob("*")) == before
    main([str(run)])
    assert (run / "hf").stat().st_mode == run.stat().st_mode


def test_the_names_of_runs_cannot_command_the_terminal(tmp_path, capsys):
    for name in ("a", "\x1b[2Jb"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    os.utime(tmp_path / "a" / "config.yaml", (0, 0))
    newest_run([tmp_path / "a", tmp_path / "\x1b[2Jb"])
    assert capsys.readouterr().err == f"Using the newest of 2 runs: {tmp_path}/ [2Jb\n"


@pytest.mark.parametrize("given", ["seed1-0 seed0-0", "."])
def test_of_several_runs_the_newest_is_taken_and_named(given, runs, capsys):
    sample.main([*(str(runs / one) for one in given.split()), "--prompt", "In", "--tokens", "5"])
    said = capsys.readouterr()
    assert said.err == f"Using the newest of 2 runs: {runs}/seed1-0\n"
    assert said.out.startswith("In")
