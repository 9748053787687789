"""Wrong command lines of the commands beside train.py, and run directories of strangers."""

from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO

import torch

from tests.config.wrong_input import Wrong

CONFIGURATION = """\
seed: 0
steps: 20
context: 16
batch_size: 2
eval_windows: 4
pos: {_target_: posenc.positions.PositionScheme}
intervention: {_target_: posenc.interventions.nothing}
model: {_target_: posenc.model.Transformer, layers: 1, width: 8, heads: 1}
attention: {_target_: posenc.model.Softmax}
objective: {_target_: posenc.objectives.objective.Causal}
tokenizer: {_target_: posenc.data.tokenizers.Bytes}
"""
"""What a stranger's run might be made of."""


def checkpoint(content: bytes) -> dict[str, bytes]:
    """The file of a checkpoint, with the checksum of what is in it."""
    return {f"run/checkpoints/step-000000010-{sha256(content).hexdigest()[:16]}.ckpt": content}


def run_of(configuration: str) -> dict[str, bytes]:
    """A run directory, as files; its checkpoint has one tensor, of 10^12 elements in a small file."""
    content = BytesIO()
    torch.save({"configuration": {}, "state_dict": {"weight": torch.zeros(1).expand(10**12)}}, content)
    return {"run/config.yaml": configuration.encode(), **checkpoint(content.getvalue())}


def stranger(changed: str, to: str, sentence: str) -> Wrong:
    """A run directory from elsewhere, with something in its configuration that does not belong there."""
    configuration = CONFIGURATION.replace(changed, to)
    assert configuration != CONFIGURATION
    return Wrong(("{here}/run",), sentence, files=run_of(configuration), program="posenc.sample")


def other(line: str, sentence: str, files: Mapping[str, bytes] | None = None) -> Wrong:
    """Another command than train.py."""
    program, *arguments = line.split()
    return Wrong(tuple(arguments), sentence, files=files or {}, program=program)


RUN = run_of(CONFIGURATION)

OTHER_COMMANDS = [
    other("posenc.sample", "the following arguments are required: run"),
    other("posenc.sample {here}", "is not a run directory: it has no config.yaml"),
    other("posenc.sample {here}/run", "has no checkpoint", {"run/config.yaml": b""}),
    other(
        "posenc.sample {here}/run",
        ".ckpt contains more than tensors and plain data",
        {"run/config.yaml": CONFIGURATION.encode(), **checkpoint(b"no weights")},
    ),
    other("posenc.sample {here}/run", "config.yaml cannot be read", {**RUN, "run/config.yaml": b"{"}),
    other("posenc.sample {here}/run", "config.yaml cannot be read", {**RUN, "run/config.yaml": b"\xff"}),
    other(
        "posenc.sample {here}/run",
        "config.yaml cannot be read: it is not a mapping",
        {**RUN, "run/config.yaml": b"[1]"},
    ),
    other("posenc.sample nowhere", "nowhere is not a run directory: it has no config.yaml"),
    other("posenc.sample -- -nowhere", "-nowhere is not a run directory: it has no config.yaml"),
    other("posenc.sample run --tokens=many", "argument --tokens: invalid int value: 'many'"),
    other("posenc.sample run --tokens=0", "argument --tokens: 0 must be between 1 and 1000000"),
    other("posenc.sample run --temperature=nan", "argument --temperature: nan must be between 0.01 and 100"),
    other(f"posenc.sample run --seed={2**70}", "must be between 0 and 9223372036854775807"),
    other("posenc.sample run --prompt=", "argument --prompt: it must be non-empty UTF-8 text"),
    stranger("posenc.positions.PositionScheme", "os.system", "pos._target_=os.system must name a class or function of"),
    stranger("heads: 1}", "heads: 1, family: {_target_: os.getcwd}}", "model.family._target_=os.getcwd must name"),
    stranger(
        "layers: 1,", "layers: '${oc.env:POSENC_SECRET}',", "model.layers=${oc.env:POSENC_SECRET} must be an integer"
    ),
    stranger("layers: 1,", "", "model.layers is missing"),
    stranger("intervention: {_target_: posenc.interventions.nothing}\n", "", "was trained by an earlier version"),
    stranger("width: 8", f"width: {10**13}", "does not match the model in config.yaml"),
    stranger("layers: 1,", f"layers: {10**11},", "does not match the model in config.yaml"),
    stranger("seed: 0", "seed: zero", "config.yaml cannot be used: seed=zero must be an integer"),
    stranger("steps: 20", "steps: many", "config.yaml cannot be used: steps=many must be an integer"),
    stranger(
        "posenc.data.tokenizers.Bytes",
        "posenc.data.tokenizers.BytePairs, vocab_size: 300",
        "tokenizer.json cannot be read",
    ),
    other(f"posenc.sample run hf_{'a' * 30}", "looks like a secret"),
    *(
        other(
            f"posenc.{name} runs/x --timeout={seconds}", f"argument --timeout: {seconds} must be between 0.1 and 86400"
        )
        for name, seconds in (("report", "nan"), ("report", "1e10"), ("wandb_report", "-1"), ("wandb_report", "0"))
    ),
    other("posenc.report runs/x --timeout=long", "argument --timeout: invalid float value: 'long'"),
    other("posenc.export {here}", "is not a run directory: it has no config.yaml"),
    other("posenc.export run --to=onnx", "argument --to: invalid choice: 'onnx'"),
    other("posenc.report", "the following arguments are required: source"),
    other("posenc.report {here}/nowhere", "no runs in"),
    other("posenc.report {here}/file", "no runs in", {"file": b""}),
    other("posenc.report {here}", "no runs in {here}; found {here}/runs", {"runs/rope/seed0-1/config.yaml": b""}),
    other("posenc.report {here}", "can be read yet", {"rope/seed0-1/config.yaml": b"\xff"}),
    Wrong(
        ("{here}",),
        "/rope cannot be read: Permission denied",
        program="posenc.report",
        files={"rope/seed0-1/config.yaml": b""},
        made=lambda here: (here / "rope").chmod(0),
    ),
    other("posenc.report wandb://entity", "must look like wandb://entity/project/group"),
    other("posenc.wandb_report runs/smoke", "runs/smoke must look like wandb://entity/project/group"),
    other("posenc.claim_map --results={here}", "--results={here}: {here}/plan.yaml cannot be read"),
    other("posenc.profile context=300000", "context=300000 is too long for this corpus"),
    *(
        ()
        if torch.backends.mps.is_available()
        else (
            other(
                "posenc.profile trainer.accelerator=mps",
                "trainer.accelerator=mps: this machine has none; use auto or cpu",
            ),
        )
    ),
    other("posenc.extrapolate", "the following arguments are required: folder"),
    other("posenc.extrapolate {here}/nowhere", "no runs in"),
    other("posenc.profile name=.hidden", "and 200 bytes, with a letter, digit or _ first"),
    other("posenc.profile pos=rop", "pos=rop is not a choice; did you mean pos=rope"),
    other("posenc.profile experiment=tuned", "experiment=tuned is a sweep: profile one of its runs"),
    other("posenc.profile pos=rope,none", "pos=rope,none is a sweep: profile one of its runs"),
    other("posenc.claim_map --copying --test", "--copying and --test: name the folders with the runs whose models"),
    other("posenc.why --ablate", "--ablate: name the folders with the runs whose models are to be measured"),
    other("posenc.profile +sweep=positions", "+sweep=positions is a sweep: profile one of its runs"),
    other("posenc.profile hydra/launcher=joblib", "hydra/launcher=joblib is a sweep: profile one of its runs"),
    other("posenc.profile steps=0", "steps=0 must be at least 1"),
    other("posenc.profile --nonsense", "unrecognized arguments: --nonsense"),
    other("posenc.profile --out={here}/file", "/file already exists: choose another file", {"file": b""}),
    other("posenc.profile --out={here}/file/x.json", "/x.json cannot be written to: Not a directory", {"file": b""}),
    other("posenc.profile pos._target_=os.system", "pos._target_ cannot be set"),
]
