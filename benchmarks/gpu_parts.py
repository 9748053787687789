"""The parts of benchmarks/gpu.py in order: commands, time limits and aims."""

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Commands that are run and reported together.

    Args:
        time_limit: seconds after which it is killed; about twice what is expected on an H200 with cold caches. A
            part without `curves` is started only if four fifths of it are left.
        aim: the result to reach.
        came_out: regular expression of the lines in its output that answer the aim.
        commands: arguments of python; {runs} is the folder of its runs, {data} the file of --data.
        quick: the same at toy size, on a CPU.
        curves: whether the files of its runs are kept, so that it resumes where it was killed.
    """

    name: str
    time_limit: int
    aim: str
    came_out: str
    commands: tuple[str, ...]
    quick: tuple[str, ...]
    curves: bool = False

    @property
    def reads_text(self) -> bool:
        return any("{data}" in line for line in self.commands)


NO_LINE = r"(?!)"
"""Of a part whose duration answers the aim, or the final losses of its runs: matches nothing."""

AGREEMENT = r"^All \d+ are .*|^(?:Out of|Still out of) tolerance.*"
ROWS = r"^\| (?!implementation|copy|float64|-)[\w ].*"
"""Rows of a table without its head, and without the rows that are no implementation."""

TRAIN = "train.py runs={runs} logger=csv"
BASE = "model=base trainer.compile=true batch_size=32 context=1024 tokenizer=bpe tokenizer.vocab_size=50257"
MAP = "experiment=claim_map_base data.path={data}"
PEERS = "benchmarks/peers.py --model base --context 1024 --batch 32 --compile --rounds 7 --steps 10 --only"
OTHERS = {"x_transformers": "x-transformers, flash", "llama": "Llama, SDPA", "gpt_neox": "GPTNeoX, SDPA"}
"""Parts of their own, since each compiles its model and ours for a minute."""

WHOLE = dict.fromkeys(OTHERS, "posenc, whole") | {"llama": "posenc, SwiGLU, whole"}
"""Our model with the loss that they have, so that memory is not won by chunks alone."""

GPU_TESTS = "-m pytest -q -n 4 -W default -o addopts=--import-mode=importlib tests/training/test_gpu.py -k 'not bf16'"
"""Without the tests that the parts `precision` and `precision_compiled` cover, without the options of plugins, and with
warnings: Inductor's and Triton's are not ours."""

TOY = "experiment=smoke trainer=cpu"
FOUR = "hydra/launcher=joblib hydra.launcher.n_jobs=4"
"""Runs at a time: where only their losses matter, the GPU need not wait for one run's compilation."""
SWEPT = "pos=none,learned,sinusoidal,rope seed=0,1,2"
ARMS, BUDGETS = ("pos=rope", "pos=sinusoidal pos.scale=0.1"), (760, 1520, 3040)
PARTS = (
    Part("probe", 60, "the chip's peak rates and its attention kernels", r"^.* TFLOP/s in bf16.*|^attention, .*",
         ("benchmarks/chips.py",), ("benchmarks/chips.py --size 64",)),
    Part("precision", 150, "bf16 on this device agrees with fp32 on the CPU", AGREEMENT,
         ("benchmarks/precision.py",),
         ("benchmarks/precision.py --lengths 64 --only pos=t5 'attention=linear objective=masked'",)),
    Part("precision_compiled", 560, "so does what is compiled", AGREEMENT,
         ("benchmarks/precision.py --compile",),
         ("benchmarks/precision.py --lengths 8 --only pos=none",)),
    Part("test_gpu", 400, "all pass", r"^.*(?:passed|failed|collected).*$",
         (GPU_TESTS,), (f"{GPU_TESTS} --collect-only",)),
    Part("train", 240, ">= 580k tokens/s and >= 50 % of the peak", r"speed .*",
         (f"{TRAIN} {BASE} data=text data.path={{data}} steps=300",), (f"{TRAIN} {TOY}",)),
    Part("schemes", 240, "RoPE <= 1.01x the sinusoid; 50,257 tokens <= 1.01x 50,304", r"^\| rope.*",
         (f"benchmarks/schemes.py {BASE} --rounds 10 --schemes 'sinusoidal,rope,rope tokenizer.vocab_size=50304'",),
         (f"benchmarks/schemes.py {TOY} --rounds 3 --steps 1 --schemes 'sinusoidal,rope pos.layout=interleaved'",)),
    Part("peers_litgpt", 330, "1.2x litgpt; memory <= 0.7x that of its whole logits", ROWS,
         (f"{PEERS} litgpt 'posenc, whole'",),
         ("benchmarks/peers.py --device cpu --context 8 --batch 1 --rounds 1 --steps 1 --only posenc",)),
    *(Part(f"peers_{name}", 330, f"1.2x {other}", ROWS, (f"{PEERS} '{other}' '{WHOLE[name]}'",),
           (f"benchmarks/peers.py --device cpu --context 8 --batch 1 --rounds 1 --steps 1 --only '{other}'",))
      for name, other in OTHERS.items()),
    Part("sweep", 160, "<= 2 min", NO_LINE, (f"{TRAIN} -m {SWEPT}",), (f"{TRAIN} -m {TOY} pos=rope seed=0",)),
    Part("compiled", 120, "a default run takes longer compiled", r"^ +(?:speed|time) .*",
         (f"{TRAIN} name=uncompiled", f"{TRAIN} name=compiled trainer.compile=true"), (f"{TRAIN} {TOY}",)),
    Part("loop", 200, "1.0x a bare loop", r"^train.py takes.*|^.*, torch .*; .*",
         tuple(f"benchmarks/loop.py logger=csv --steps 200 --rounds 3 trainer.{option}"
               for option in ("compile=auto", "compile=true", "cuda_graphs=true")),
         (f"benchmarks/loop.py {TOY} logger=csv --steps 10 --rounds 2 trainer.compile=false",)),
    Part("start", 100, "first step within a few seconds", r"first step done.*",
         ("benchmarks/start.py --loggers csv --rounds 2",),
         (f"benchmarks/start.py {TOY} --loggers csv --rounds 1",)),
    Part("comparison", 560, "RoPE, the sinusoid, learned and ALiBi at 25M, 26M bytes of text, each at its own best "
         "learning rate of three", NO_LINE,
         (f"{TRAIN} -m experiment=text_small_tuned data.path={{data}} trainer.compile=true {FOUR}",),
         (f"{TRAIN} {TOY} pos=sinusoidal pos.scale=0.1",), curves=True),
    Part("claim_map_rates", 560, "the best of three learning rates for either arm of claim_map, at 25M tokens",
         NO_LINE,
         tuple(f"{TRAIN} -m {MAP} {arm} steps={BUDGETS[0]} optim.lr=0.0003,0.0006,0.0012 hydra/launcher=joblib "
               "hydra.launcher.n_jobs=3" for arm in ARMS),
         (f"{TRAIN} {TOY} steps=10",), curves=True),
    Part("claim_map", 560, "RoPE and the sinusoid at 124M, 50M and 100M tokens beside the 25M of claim_map_rates, both "
         "at a learning rate of 0.0006", NO_LINE,
         tuple(f"{TRAIN} {MAP} {arm} steps={steps}" for steps, arm in itertools.product(BUDGETS[1:], ARMS)),
         (f"{TRAIN} {TOY} steps=10",), curves=True),
    Part("roofline", 240, "half of the peak, with a breakdown", r"^Lower bound of a step.*",
         ("benchmarks/roofline.py --measure --chunk 4096",),
         ("benchmarks/roofline.py --model tiny --measure --device cpu --context 8 --batch 2 --rounds 2 --eager",)),
    Part("rotary", 240, "as fast as a copy", ROWS,
         ("benchmarks/rotary.py --device cuda --compile --precision bf16 --sizes 128x12x1024x64 8x32x4096x128",),
         ("benchmarks/rotary.py --device cpu --sizes 1x1x8x8 --rounds 1",)),
    Part("scaling", 330, "linear attention overtakes softmax with length", r"^\| +[\d,]+ \|.*|^- .*",
         ("benchmarks/scaling.py --axes length",),
         ("benchmarks/scaling.py --device cpu --quick --axes batch --rounds 1",)),
    Part("together", 400, "several runs in parallel: faster than sequential runs", r"^\| \d.*",
         ("benchmarks/together.py pos=none,learned,sinusoidal,rope seed=0,1 --at-a-time 2,4,8",),
         ("benchmarks/together.py experiment=smoke pos=none,rope",)),
)  # fmt: skip
