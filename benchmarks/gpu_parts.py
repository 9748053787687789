"""The parts of benchmarks/gpu.py in order: commands, time limits and aims."""

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """Commands that are run and reported together.

    Args:
        time_limit: seconds after which it is killed.
        aim: the result to reach.
        commands: arguments of python; {runs} is the folder of its runs, {data} the file of --data.
        quick: the same at toy size, on a CPU.
        curves: whether the files of its runs are kept.
    """

    name: str
    time_limit: int
    aim: str
    commands: tuple[str, ...]
    quick: tuple[str, ...]
    curves: bool = False


TRAIN = "train.py runs={runs} logger=csv"
BASE = "model=base trainer.compile=true batch_size=32 context=1024 tokenizer=bpe tokenizer.vocab_size=50257"
SMALL = "experiment=text_small data.path={data}"
MAP = "experiment=claim_map_small data.path={data} model=base tokenizer.vocab_size=50257 optim.lr=0.0006"
PEERS = "benchmarks/peers.py --model base --context 1024 --batch 32 --compile --rounds 5 --only"
GPU_TESTS = "-m pytest -q tests/training/test_gpu.py -k 'not bf16'"
"""Without the test that the part `precision` covers."""

TOY = "experiment=smoke trainer=cpu"
ARMS, BUDGETS = ("pos=rope", "pos=sinusoidal pos.scale=0.1"), (760, 1520, 3040)
PARTS = (
    Part("probe", 30, "the chip's peak rates and its attention kernels",
         ("benchmarks/chips.py",), ("benchmarks/chips.py --size 64",)),
    Part("precision", 90, "bf16 on this device agrees with fp32 on the CPU",
         ("benchmarks/precision.py",),
         ("benchmarks/precision.py --lengths 64 --only pos=t5 'attention=linear objective=masked'",)),
    Part("test_gpu", 240, "all pass", (GPU_TESTS,), (f"{GPU_TESTS} --collect-only",)),
    Part("train", 150, ">= 580k tokens/s and >= 50 % of the peak",
         (f"{TRAIN} {BASE} data=text data.path={{data}} steps=100",), (f"{TRAIN} {TOY}",)),
    Part("schemes", 120, "RoPE <= 1.01x the sinusoid; 50,257 tokens <= 1.01x 50,304",
         (f"benchmarks/schemes.py {BASE} --rounds 10 --schemes 'sinusoidal,rope,rope tokenizer.vocab_size=50304'",),
         (f"benchmarks/schemes.py {TOY} --rounds 3 --steps 1 --schemes 'sinusoidal,rope pos.layout=interleaved'",)),
    Part("peers", 330, "1.2x each; memory <= 0.7x litgpt's whole logits",
         (f"{PEERS} litgpt 'posenc, whole'", f"{PEERS} 'x-transformers, flash' 'Llama, SDPA' 'GPTNeoX, SDPA'"),
         ("benchmarks/peers.py --device cpu --context 8 --batch 1 --rounds 1 --steps 1 --only litgpt",)),
    Part("sweep", 120, "<= 2 min", (f"{TRAIN} -m",), (f"{TRAIN} -m {TOY} pos=rope seed=0",), curves=True),
    Part("sweep_compiled", 240, "slower than uncompiled",
         (f"{TRAIN} -m trainer.compile=true",), (f"{TRAIN} -m {TOY} pos=rope seed=0",)),
    Part("loop", 120, "1.0x a bare loop",
         ("benchmarks/loop.py logger=csv", "benchmarks/loop.py logger=csv trainer.cuda_graphs=true"),
         (f"benchmarks/loop.py {TOY} logger=csv --steps 10 --rounds 2",)),
    Part("start", 60, "first step within a few seconds", ("benchmarks/start.py --loggers csv --rounds 2",),
         (f"benchmarks/start.py {TOY} --loggers csv --rounds 1",)),
    Part("comparison", 400, "RoPE, the tuned sinusoid, learned and ALiBi at 25M, 52M bytes of Wikipedia",
         (f"{TRAIN} {SMALL} pos=sinusoidal pos.scale=0.1", f"{TRAIN} -m {SMALL} pos=rope,learned,alibi seed=0"),
         (f"{TRAIN} {TOY} pos=sinusoidal pos.scale=0.1",), curves=True),
    Part("claim_map", 560, "124M at 25M, 50M and 100M tokens, RoPE and the sinusoid",
         tuple(f"{TRAIN} {MAP} {arm} steps={steps}" for steps, arm in itertools.product(BUDGETS, ARMS)),
         (f"{TRAIN} {TOY} steps=10",), curves=True),
    Part("roofline", 120, "half of the peak, with a breakdown", ("benchmarks/roofline.py --measure --chunk 4096",),
         ("benchmarks/roofline.py --model tiny --measure --device cpu --context 8 --batch 2 --rounds 2 --eager",)),
    Part("rotary", 200, "as fast as a copy", ("benchmarks/rotary.py --device cuda --compile",),
         ("benchmarks/rotary.py --device cpu --sizes 1x1x8x8 --rounds 1",)),
    Part("scaling", 300, "linear attention overtakes softmax with length", ("benchmarks/scaling.py",),
         ("benchmarks/scaling.py --device cpu --quick --axes batch --rounds 1",)),
    Part("together", 300, "several runs in parallel: faster than sequential runs",
         ("benchmarks/together.py pos=none,learned,sinusoidal,rope seed=0,1 --at-a-time 2,4,8",),
         ("benchmarks/together.py experiment=smoke pos=none,rope",)),
)  # fmt: skip
