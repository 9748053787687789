"""Profile a few steps of what train.py would train: `python -m posenc.profile pos=rope`."""

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from posenc.config.command_line import Arguments, one_sentence_errors
from posenc.config.files import CONF
from posenc.errors import UserError

if TYPE_CHECKING:
    import torch

PHASES = ("batch", "forward", "backward", "clip", "update")
DEAREST = 10

WARM_UP, TIMED, TRACED = 3, 5, 3
"""Steps thrown away, steps timed without the profiler, which slows them, and steps traced, after one to warm it up."""

STEPS = WARM_UP + TIMED + 1 + TRACED

DESCRIPTION = """\
Profile a few steps of what `python train.py` would train with the same arguments.

It prints the time a step by phase and the ten dearest operations, and writes a trace in which each of them can be
looked at. No run is begun, and nothing is logged."""

EXAMPLES = """\
examples:
  python -m posenc.profile pos=rope
  python -m posenc.profile pos=rope model=small trainer.compile=true
  python -m posenc.profile attention=linear context=1024 batch_size=4 --out linear.json

`python train.py --help` lists the choices, `python train.py --cfg job` the keys and their values."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(
        prog="posenc profile",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="what to train, as for train.py")
    default = "runs/profiles/<pos>-<model>-<device>.json, numbered if there is one"
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"where the trace goes; default: {default}")
    given = parser.parse_intermixed_args(arguments)
    with one_sentence_errors(given.overrides, CONF):
        profile(given.overrides, given.out)


def profile(overrides: Sequence[str], out: Path | None = None) -> None:
    """Trace a few training steps, print where their time goes and write the trace.

    Args:
        overrides: of the configuration, as train.py takes them.
        out: the file of the trace; by default a new one in runs/profiles.

    Raises:
        UserError: if the configuration cannot be used, or `out` exists or cannot be written. Nothing is written then.
    """
    from omegaconf import OmegaConf

    from posenc.config.compose import composed
    from posenc.config.schema import check
    from posenc.storage.atomic import check_writable

    configuration, choices = composed(CONF, overrides)
    config = cast(dict[str, Any], OmegaConf.to_container(configuration, resolve=True, throw_on_missing=True))
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # before torch: its tracer would announce itself on stderr
    settings = check(config)
    from posenc.config.instantiate import build
    from posenc.training.environment import hardware as chip

    hardware = build(config, "trainer")
    device = _device(hardware.accelerator)
    what = f"{choices['pos']}-{choices['model']}-{device.type}"
    file = out or _unused(Path(settings.runs) / "profiles", what)
    check_writable(f"--out={file}", file.parent)
    if file.exists():
        raise UserError(f"--out={file} exists: name another file, or delete it")
    clock = Clock(device)
    step = training_step(config, choices["data"], hardware, clock)
    on = f"{chip(device)}, {hardware.chosen_precision()}{', compiled' if hardware.compiles() else ''}"
    print(f"{what}: {settings.batch_size} windows of {settings.context} tokens a step; {on}", flush=True)
    profiler = _traced(step, device)
    _write(profiler, file)
    _show_phases(clock, settings.batch_size * settings.context)
    _show_operations(profiler)
    print(f"\nTrace: {file}. To look at it, drag it into https://ui.perfetto.dev or chrome://tracing.")


def _device(accelerator: str) -> "torch.device":
    """The device that train.py would take."""
    import torch

    from posenc.training.accelerator import best_device

    device = torch.device("cpu") if accelerator == "cpu" else best_device()
    known = {"auto", device.type} if device.type == "cpu" else {"auto", "gpu", device.type}
    if accelerator not in known:
        raise UserError(f"trainer.accelerator={accelerator}: this machine has none; use auto or cpu")
    return device


def _unused(folder: Path, name: str) -> Path:
    """A file that is not there yet."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(file for name in names if not os.path.exists(file := folder / f"{name}.json"))


class Clock:
    """How long each phase of a step takes; in the trace, phases are ranges of the same names.

    On a GPU a phase ends when the device gets to its end, not when the program has asked for it: nothing waits.
    """

    def __init__(self, device: "torch.device") -> None:
        self.device = device
        self.marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in PHASES}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what is done inside."""
        from torch.profiler import record_function

        begun = self._mark()
        with record_function(name):
            yield
        self.marks[name].append((begun, self._mark()))

    def milliseconds(self, name: str, steps: slice) -> float:
        """Of a phase, the median over these steps."""
        return median(self._between(*pair) for pair in self.marks[name][steps])

    def _mark(self) -> Any:
        import torch

        if self.device.type == "cpu":
            return time.perf_counter()
        event = torch.Event(self.device, enable_timing=True)
        event.record()
        return event

    def _between(self, begun: Any, ended: Any) -> float:
        return 1000 * (ended - begun) if self.device.type == "cpu" else begun.elapsed_time(ended)


def training_step(config: Mapping[str, Any], corpus: str, hardware: Any, clock: Clock) -> "Callable[[], torch.Tensor]":
    """One step after the other of what train.py would train; each call returns its loss.

    Args:
        config: resolved.
        corpus: the choice of `data`, which names the cache.
        hardware: the trainer of the configuration.
        clock: times the phases, on its device.
    """
    from posenc.config.instantiate import build
    from posenc.training.experiment import Experiment

    experiment = Experiment.of(config)
    prepared = experiment.prepare(build(config, "data"), corpus)
    stream = experiment.batches(prepared).on(clock.device).stream(0, STEPS)
    update = experiment.training_step(hardware, clock.device, clock.phase)

    def step() -> "torch.Tensor":
        with clock.phase("batch"):
            batch = [part.to(clock.device, non_blocking=True) for part in next(stream)]
            inputs, targets = experiment.objective.inputs_and_targets(*batch)
        return update(inputs, targets)

    return step


def _traced(step: Callable[[], Any], device: "torch.device") -> Any:
    """Take all steps -> the profiler, with the last of them."""
    import torch
    from torch.profiler import profile, schedule

    with profile(schedule=schedule(wait=WARM_UP + TIMED, warmup=1, active=TRACED, repeat=1)) as profiler:
        for steps in (WARM_UP, TIMED, 1, TRACED):
            for _ in range(steps):
                step()
                profiler.step()
            if device.type != "cpu":
                torch.accelerator.synchronize()  # what is still queued must not run into the next ones
    return profiler


def _write(profiler: Any, file: Path) -> None:
    """Write the trace by atomic rename."""
    partial = file.with_name(f".{file.name}")  # its ending says whether it is compressed
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(partial))
        partial.replace(file)
    except (OSError, RuntimeError) as error:
        raise UserError(f"the trace cannot be written to {file}: {getattr(error, 'strerror', error)}") from error
    finally:
        partial.unlink(missing_ok=True)


def _show_phases(clock: Clock, tokens: int) -> None:
    times = {name: clock.milliseconds(name, slice(WARM_UP, WARM_UP + TIMED)) for name in PHASES}
    total = sum(times.values())
    print(f"\n{'phase':62}{'ms a step':>12}{'share':>9}")
    for name, value in times.items():
        print(f"{name:62}{value:12.3f}{value / total:9.1%}")
    print(f"{'step':62}{total:12.3f}   {1000 * tokens / total:,.0f} tokens/s")


def _show_operations(profiler: Any) -> None:
    """The dearest by the time that is their own: on the device if the tracer saw it, otherwise on the CPU."""
    from torch.autograd import DeviceType

    operations = [entry for entry in profiler.key_averages() if not entry.is_user_annotation]
    on_device = [entry for entry in operations if entry.device_type != DeviceType.CPU]
    where, seen = ("device", on_device) if on_device else ("CPU", operations)
    own = {entry.key: entry.self_device_time_total if on_device else entry.self_cpu_time_total for entry in seen}
    counts = {entry.key: entry.count for entry in seen}
    total = sum(own.values())
    print(f"\n{f'operation, its own time on the {where}':50}{'calls a step':>12}{'ms a step':>12}{'share':>9}")
    for key in sorted(own, key=own.__getitem__, reverse=True)[:DEAREST]:
        calls, milliseconds = counts[key] / TRACED, own[key] / 1000 / TRACED
        print(f"{_short(key):50}{calls:12g}{milliseconds:12.3f}{own[key] / total:9.1%}")
    every = f"all {len(own)} operations, while traced"
    print(f"{every:50}{sum(counts.values()) / TRACED:12g}{total / 1000 / TRACED:12.3f}")


def _short(name: str) -> str:
    """The name of an operation or a kernel in one column."""
    for noise in ("void ", "at::native::", "(anonymous namespace)::"):
        name = name.replace(noise, "")
    return name if len(name) < 50 else f"{name[:47]}.."


if __name__ == "__main__":
    main()
