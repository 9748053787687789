"""What a command line may say, and what not."""

import pytest

from posenc.config.argument_checks import check_arguments
from posenc.config.quoting import flags_first
from posenc.errors import UserError

CHOICES = {"pos": {"rope", "none"}, "hydra/launcher": {"joblib"}}


@pytest.mark.parametrize(
    "arguments",
    [
        ["pos=rope", "pos.base=500"],
        ["--cfg", "job"],
        ["--multirun", "pos=rope,none", "seed=range(1,3)"],
        ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "-m"],
        ["hydra.sweeper.grid={a:[1]}"],
        ["data.path=books/*.txt", "name=a_b-c.d"],
        ["attention_every=${eval_every}"],
    ],
)
def test_what_is_harmless_passes(arguments):
    check_arguments(arguments, CHOICES)


def test_a_path_needs_no_quotes(monkeypatch):
    monkeypatch.setenv("HOME", "/home/jos\xe9")
    arguments = flags_first(
        ["data.path=~/my books (1)/*.txt", "runs=/data/\xfc=1", "-m", "cache='/a b'", "seed=1,2", "runs=/plain/*"]
    )
    check_arguments(arguments, CHOICES)
    assert arguments[-1] == "runs=/plain/*"
    assert flags_first(["pos=rope", "~data.separator", "-m"]) == ["-m", "pos=rope", "~data.separator"]
    assert arguments[:3] == ["-m", "data.path='/home/jos\xe9/my books (1)/*.txt'", "runs='/data/\xfc=1'"]


@pytest.mark.parametrize(
    "argument",
    [
        "pos=a/../../rope",
        "pos=rope/",
        "+pos={_target_:os.system}",
        "+pos.x={y:{_target_:os.system}}",
        "++pos._target_=os.system",
        "++hydra.sweep.dir=x",
        "hydra.callbacks={}",
        "hydra={run:{dir:x}}",
        "hydra.sweeper.params={pos._target_:os.system}",
        "hydra.launcher.n_jobs=[{_target_:os.makedirs}]",
        "hydra.sweeper.grid={optim.lr:[{_target_:torch.load}]}",
        "pos.base=${oc.env:KEY}",
        "pos.base=${ oc.env:KEY,none}",
        "pos.base=${oc.decode:${oc.env:KEY}}",
    ],
)
def test_what_calls_reads_or_writes_elsewhere_is_refused(argument):
    with pytest.raises(UserError):
        check_arguments([argument], CHOICES)
