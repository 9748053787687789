"""The page of benchmarks/gpu.py: what came out of each part, then its commands and output."""

import re
from collections.abc import Iterator
from typing import Any

from gpu_parts import PARTS, Part


def page(results: dict[str, dict[str, dict[str, Any]]]) -> Iterator[str]:
    """The parts with results, in order: a table of what came out, then each with its commands and output."""
    measured = [(part, result) for part in PARTS for result in results.get(part.name, {}).values()]
    yield "# GPU results\n"
    yield "| part | chip | status | seconds | aim | came out |\n|---|---|---|---|---|---|"
    for part, result in measured:
        found = "<br>".join(result.get("losses") or came_out(part, result["output"]))
        status, seconds = result["status"], result["seconds"]
        yield f"| {part.name} | {result['chip']} | {status} | {seconds:.1f} | {result['aim']} | {found} |"
    for part, result in measured:
        yield f"\n## {part.name}\n"
        yield f"On {result['chip']}, torch {result['torch']}, source {result['source']}."
        if set(result.get("runs", [])) - {result["source"]}:
            yield f"Its runs were finished by source {', '.join(result['runs'])}."
        yield "\n".join(
            ["\n```", *(f"python {line}" for line in result["commands"]), "", result["output"].strip(), "```"]
        )
    yield ""


def came_out(part: Part, output: str) -> list[str]:
    """The lines of a part's output that answer its aim, the cells of a table's row separated by commas."""
    lines = [" ".join(found[0].split()).strip("| ") for found in re.finditer(part.came_out, output, re.MULTILINE)]
    return [line.replace(" | ", ", ") for line in lines]
