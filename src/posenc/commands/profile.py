"""Profile a few training steps: `python -m posenc.profile pos=rope`."""

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from posenc.config.arguments import Arguments
from posenc.config.command_line import one_sentence_errors
from posenc.config.files import CONF
from posenc.config.quoting import flags_first
from posenc.errors import UserError
from posenc.storage.atomic import PARTIAL

if TYPE_CHECKING:
    import torch

PHASES = ("batch", "forward", "backward", "clip", "update")
TOP = 10
"""Number of operations listed."""

WARM_UP, TIMED, TRACED = 3, 5, 3
"""Steps discarded, timed without the profiler (which slows them), and traced, after one to warm up the profiler."""

STEPS = WARM_UP + TIMED + 1 + TRACED

ONE_RUN = "profile one of its runs"
"""The advice for a sweep."""

DESCRIPTION = """\
Profile a few training steps of `python train.py` with the same arguments.

It prints the time per step by phase and the ten most expensive operations, and writes a trace for a trace viewer. No
run is created, and nothing is logged."""

EXAMPLES = """\
examples:
  python -m posenc.profile pos=rope
  python -m posenc.profile pos=rope model=small trainer.compile=true
  python -m posenc.profile attention=linear context=1024 batch_size=4 --out linear.json

`python train.py --help` lists the choices, `python train.py --cfg job` all keys and values."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = Arguments(
        prog="posenc profile",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="overrides, as for train.py")
    default = "runs/profiles/<pos>-<model>-<device>.json, numbered if it exists"
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"the trace; default: {default}")
    with parser.parsed(arguments) as given:
        overrides = flags_first(given.overrides)
        with one_sentence_errors(overrides, CONF, ONE_RUN):
            profile(overrides, given.out)


def profile(overrides: Sequence[str], out: Path | None = None) -> None:
    """Trace a few training steps, print where their time goes and write the trace.

    Raises:
        UserError: if the configuration is invalid, or `out` exists or cannot be written. Nothing has been written then.
    """
    from omegaconf import OmegaConf

    from posenc.config.argument_checks import check_single_run
    from posenc.config.compose import composed, with_hydra
    from posenc.config.schema import check
    from posenc.storage.atomic import check_writable
    from posenc.storage.resource_errors import resource_errors

    check_single_run(with_hydra(CONF, overrides).hydra, ONE_RUN)
    configuration, choices = composed(CONF, overrides)
    config = cast(dict[str, Any], OmegaConf.to_container(configuration, resolve=True, throw_on_missing=True))
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # before importing torch, whose tracer prints to stderr
    settings = check(config)
    from posenc.config.instantiate import build
    from posenc.training.accelerator import compiler_errors
    from posenc.training.environment import device_name

    hardware = build(config, "trainer")
    device = hardware.device
    name = f"{choices['pos']}-{choices['model']}-{device.type}"
    file = out or _unused(Path(settings.runs) / "profiles", name)
    check_writable(f"--out={file}", file.parent)
    if file.exists():
        raise UserError(f"--out={file} already exists: choose another file, or delete it")
    clock = Clock(device)
    with resource_errors(configuration):
        step = training_step(config, choices["data"], hardware, clock)
    compiled = hardware.compile is True or hardware.cuda_graphs  # the choice of compile=auto has been printed
    setup = f"{device_name(device)}, {hardware.chosen_precision()}{', compiled' if compiled else ''}"
    print(f"{name}: {settings.batch_size} windows of {settings.context} tokens per step; {setup}", flush=True)
    with resource_errors(configuration), compiler_errors():
        profiler = _trace(step, device)
    write_trace(profiler, file)
    _show_phases(clock, settings.batch_size * settings.context)
    _show_operations(profiler)
    print(f"\nTrace: {file}. View it in https://ui.perfetto.dev or chrome://tracing.")


def _unused(folder: Path, name: str) -> Path:
    """The first file name that does not exist yet."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
    return next(file for name in names if not os.path.exists(file := folder / f"{name}.json"))


class Clock:
    """Times the phases of a step, which are also named ranges in the trace.

    On a GPU it uses device events, so phases are timed on the device without synchronising it.
    """

    def __init__(self, device: "torch.device") -> None:
        self.device = device
        self.marks: dict[str, list[tuple[Any, Any]]] = {name: [] for name in PHASES}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Context that is timed as a phase."""
        from torch.profiler import record_function

        start = self._mark()
        with record_function(name):
            yield
        self.marks[name].append((start, self._mark()))

    def milliseconds(self, name: str, steps: slice) -> float:
        """Median time of a phase over these steps."""
        return median(self._between(*pair) for pair in self.marks[name][steps])

    def _mark(self) -> Any:
        import torch

        if self.device.type == "cpu":
            return time.perf_counter()
        event = torch.Event(self.device, enable_timing=True)
        event.record()
        return event

    def _between(self, start: Any, end: Any) -> float:
        return 1000 * (end - start) if self.device.type == "cpu" else start.elapsed_time(end)


def training_step(config: Mapping[str, Any], corpus: str, hardware: Any, clock: Clock) -> "Callable[[], torch.Tensor]":
    """A function that takes one training step of a resolved configuration per call and returns its loss."""
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


def _trace(step: Callable[[], Any], device: "torch.device") -> Any:
    """Run all steps; returns the profiler with the traced ones."""
    import torch
    from torch.profiler import profile, schedule

    cycle = schedule(wait=WARM_UP + TIMED, warmup=1, active=TRACED, repeat=1)
    with profile(schedule=cycle, acc_events=True) as profiler:  # torch 2.11 warns otherwise
        for steps in (WARM_UP, TIMED, 1, TRACED):
            for _ in range(steps):
                step()
                profiler.step()
            if device.type != "cpu":
                torch.accelerator.synchronize()  # queued work must not overlap with the next steps
    return profiler


def write_trace(profiler: Any, file: Path) -> None:
    """Write the trace atomically, first into a new folder beside it: the profiler would write through a link."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent, prefix=PARTIAL) as folder:
            partial = Path(folder, file.name)  # the profiler compresses depending on the suffix
            profiler.export_chrome_trace(str(partial))
            partial.replace(file)
    except (OSError, RuntimeError) as error:
        raise UserError(f"the trace cannot be written to {file}: {getattr(error, 'strerror', error)}") from error


def _show_phases(clock: Clock, tokens: int) -> None:
    times = {name: clock.milliseconds(name, slice(WARM_UP, WARM_UP + TIMED)) for name in PHASES}
    total = sum(times.values())
    print(f"\n{'phase':62}{'ms per step':>12}{'share':>9}")
    for name, value in times.items():
        print(f"{name:62}{value:12.3f}{value / total:9.1%}")
    print(f"{'step':62}{total:12.3f}   {1000 * tokens / total:,.0f} tokens/s")


def _show_operations(profiler: Any) -> None:
    """Print the operations with the largest self time: on the device if it was traced, otherwise on the CPU."""
    from torch.autograd import DeviceType

    operations = [entry for entry in profiler.key_averages() if not entry.is_user_annotation]
    on_device = [entry for entry in operations if entry.device_type != DeviceType.CPU]
    where, entries = ("device", on_device) if on_device else ("CPU", operations)
    cost = attrgetter("self_device_time_total" if on_device else "self_cpu_time_total")  # microseconds
    total = sum(map(cost, entries))
    print(f"\n{f'operation, self time on the {where}':48}{'calls per step':>14}{'ms per step':>12}{'share':>9}")
    for entry in sorted(entries, key=cost, reverse=True)[:TOP]:
        calls, milliseconds = entry.count / TRACED, cost(entry) / 1000 / TRACED
        print(f"{_short(entry.key):50}{calls:12g}{milliseconds:12.3f}{cost(entry) / total:9.1%}")
    label = f"all {len(entries)} operations, while traced"
    print(f"{label:50}{sum(entry.count for entry in entries) / TRACED:12g}{total / 1000 / TRACED:12.3f}")


def _short(name: str) -> str:
    """The name of an operation or kernel, shortened to one column; its end tells forward from backward."""
    for prefix in ("void ", "at::native::", "(anonymous namespace)::"):
        name = name.replace(prefix, "")
    return name if len(name) < 50 else f"{name[:26]}..{name[-21:]}"


if __name__ == "__main__":
    main()
