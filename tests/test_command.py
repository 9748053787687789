"""What a user types wrong is answered in one sentence, with exit code 2, and nothing is left behind."""

import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT, clean_environment

WRONG = [
    (["pos=rop"], "pos=rop is not a choice; did you mean pos=rope"),
    (["model=huge"], "model=huge is not a choice; there are model=base, model=small, model=tiny"),
    (["logger=tensorboard"], "logger=tensorboard is not a choice"),
    (["experiment=kjv"], "experiment=kjv is not a choice; did you mean experiment=kjv_tiny"),
    (["data=enwik9"], "did you mean data=enwik8"),
    (["poss=rope"], "poss is not a key; did you mean pos"),
    (["lr=0.1"], "lr is not a key; did you mean optim.lr?"),
    (["pos.bas=100"], "pos.bas is not a key; did you mean pos.base"),
    (["quux=1"], "quux is not a key; see --help and --cfg job for those there are"),
    (["stepz=100"], "stepz is not a key; did you mean steps"),
    (["pos=sinusoidal", "pos.scle=1"], "pos.scle is not a key; did you mean pos.scale"),
    (["pos=none", "pos.base=1"], "pos.base is not a key"),
    (["-m", "pos=none,rope", "sed=1,2"], "sed is not a key; did you mean seed"),
    (["-m", "pos=rope,sinusoidal", "pos.scale=1.0,2.0"], "pos.scale is not a key with pos=rope: sweep it apart"),
    (["-m", "pos=none,rop"], "pos=rop is not a choice; did you mean pos=rope"),
    (["pos.layout=hlf"], "pos.layout=hlf must be half or interleaved; did you mean half?"),
    (["pos.base=-1"], "pos.base=-1 must be a positive number"),
    (["pos.base=many"], "pos.base=many must be a finite number"),
    (["pos.fraction=2"], "pos.fraction=2 must be above 0 and at most 1"),
    (["+pos.bace=5"], "pos.bace is not a key; did you mean pos.base?"),
    (["pos=sinusoidal", "pos.scale=raw"], "pos.scale=raw must be a finite number or matched"),
    (["pos=sinusoidal", "model.width=7", "model.heads=1"], "pos.width=7 must be even"),
    (["pos=learned", "pos.context=100"], "context=256 is longer than the 100 positions"),
    (["model.width=100", "model.heads=3"], "model.width=100 must be a multiple of model.heads=3"),
    (["pos=none", "model.width=100", "model.heads=3"], "model.width=100 must be a multiple of heads=3"),
    (["model.heads=0"], "model.heads=0 must be a whole number, at least 1"),
    (["model.width=12", "model.heads=4"], "head_dim=3"),
    (["model.layers=0"], "model.layers=0 must be at least 1"),
    (["model.layers=two"], "model.layers=two must be a whole number"),
    (["steps=0"], "steps=0 must be at least 1"),
    (["steps=301"], "steps=301 must be a multiple of eval_every=10"),
    (["eval_every=15"], "eval_every=15 must be a multiple of log_every=10"),
    (["steps=1e3"], "steps=1000.0 must be a whole number"),
    (["seed=-1"], "seed=-1 must be between 0 and 2^63 - 1"),
    (["batch_size=0"], "batch_size=0 must be at least 1"),
    (["rerun=maybe"], "rerun=maybe must be true or false"),
    (["name=../x"], "name=../x must be a plain folder name"),
    (["optim.lr=-1"], "optim.lr=-1 must be above 0"),
    (["optim.lr=nan"], "optim.lr=nan must be a finite number"),
    (["optim.betas=[0.9]"], "optim.betas=[0.9] must be 2 numbers, like [0.9,0.95]"),
    (["optim.betas=[0.9,1.0]"], "optim.betas=[0.9, 1.0] must both be at least 0 and below 1"),
    (["optim.warmup=2"], "optim.warmup=2 must be between 0 and 1"),
    (["trainer.precision=fp8"], "trainer.precision=fp8 must be auto or 32-true or bf16-mixed"),
    (["trainer.accelerator=tpu"], "trainer.accelerator=tpu must be auto or cpu"),
    (["data=text"], "data.path is missing"),
    (["data=text", "data.path=/nowhere.txt"], "data.path=/nowhere.txt does not exist"),
    (["data=text", "data.path=conf/pos"], "data.path=conf/pos holds no text: wanted .txt, .jsonl, .parquet"),
    (["context=300000"], "context=300000 is too long for this corpus: its validation split has only"),
    (["tokenizer=bpe", "tokenizer.vocab_size=100"], "tokenizer.vocab_size=100 must be above 257"),
    (["rope"], "'rope' cannot be read"),
    (["+foo.bar=1"], "foo is not a key"),
    (["+model.seed=7"], "model.seed is not a key"),
    (["~steps"], "steps is missing"),
    (["pos="], "pos= is not a choice"),
]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=clean_environment(),
    )


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """The answer to every wrong command line, two at a time: most of each second is starting Python."""
    from concurrent.futures import ThreadPoolExecutor

    runs = tmp_path_factory.mktemp("wrong") / "runs"
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(lambda wrong: command(f"runs={runs}", "logger=csv", *wrong[0]), WRONG)
    return runs, list(results)


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_a_wrong_command_is_answered_in_one_sentence(number, answers):
    runs, results = answers
    result, sentence = results[number], WRONG[number][1]
    assert sentence in result.stderr
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert not runs.exists()


def test_help_reads_like_a_manual_and_names_every_choice():
    result = command("--help")
    assert result.returncode == 0
    conf = ROOT / "conf"
    for folder in {file.parent for file in conf.glob("*/**/*.yaml")}:
        group = str(folder.relative_to(conf))
        if not group.startswith("hydra"):
            choices = ", ".join(sorted(file.stem for file in folder.glob("*.yaml")))
            assert f"{group}: {choices}" in result.stdout
    for word in ("USAGE", "EXAMPLES", "python train.py pos=rope"):
        assert word in result.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["--cfg", "job"], ["pos=none", "--cfg", "job"]])
def test_nothing_heavy_is_imported_to_answer_a_question(arguments):
    """What makes these answer in well under a second; the seconds themselves depend on the machine."""
    code = (
        "import runpy, sys\n"
        "try: runpy.run_path('train.py', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'lightning', 'numpy', 'wandb', 'datasets'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=clean_environment(),
    )
    assert result.returncode == 0, result.stderr


def test_ctrl_c_is_not_a_traceback(tmp_path):
    import signal

    from posenc.directory import read_metrics

    arguments = [f"runs={tmp_path}/runs", "experiment=smoke", "logger=csv", "steps=100000"]
    # Where the tests run in the background of a shell, SIGINT is ignored, and processes inherit that.
    code = (
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_path('train.py', run_name='__main__')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, env=clean_environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while not any(read_metrics(file) for file in tmp_path.rglob("metrics.csv")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "is saved in" in errors
    assert "goes on from there" in errors
    assert "Traceback" not in errors
