"""The rules of docs/protocol.md are those of the plan, the results and the configuration of the claim map."""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from posenc.analysis.run_key import SEARCH
from posenc.analysis.search import searches
from posenc.analysis.study import Study
from tests.conftest import CONF, ROOT, composed

RULES = (ROOT / "docs/protocol.md").read_text().partition("## Rules in force")[2].partition("## Record of changes")[0]
STUDY = Study(ROOT / "results/claim-map")
TRIALS = [block for block in STUDY.plan["blocks"] if set(block["seeds"]) <= set(STUDY.plan["search_seeds"])]
INTERVENTIONS = [block for block in STUDY.plan["blocks"] if "intervention=" in str(block["arms"])]
OTHERS = [block for block in STUDY.plan["blocks"] if "alternative" in block]
VERDICT = [block for block in STUDY.plan["blocks"] if block not in (*TRIALS, *INTERVENTIONS, *OTHERS)]
BACKBONE = [block for block in VERDICT if block["what"] == "backbone"]
LONGEST = [block for block in VERDICT if block["what"].startswith("backbone, ")]
"""Of the backbone too, with the winners of searches of their own."""

LONGER_T5 = [block for block in VERDICT if block["units"] in ([16], [64]) and [*block["arms"]][0].startswith("pos=t5")]


DIGITS = re.compile(r"\| \d")
"""The start of a row of the table of the longer budgets."""

OLDER = "pos=learned pos.scale=0.1 optim.lr=0.0042 attention=linear"
"""An arm that was trained before its search ended."""

SECOND = {"base": "pos.base", "amplitude": "pos.scale", "standard deviation at initialisation": "pos.scale"}
"""The keys of the second hyperparameters, by their names in the table of arms."""


def stated(pattern: str) -> list[str]:
    """The groups of a pattern that the rules contain once."""
    (found,) = re.finditer(pattern, " ".join(RULES.split()))
    return list(found.groups())


def numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\b", text)]


def values(text: str) -> list[float | str]:
    """0.006, 1,000, learned, 1 with tokens times sqrt(D): the first word of each."""
    words = [item.split()[0].rstrip(":") for item in text.split(", ")] if text else []
    return [canonical(word.replace(",", "")) for word in words]


def canonical(value: Any) -> float | str:
    return float(value) if re.fullmatch(r"[\d.]+", str(value)) else str(value)


def arms() -> Iterator[tuple[list[str], list[str]]]:
    """The schemes and the other cells of each row of the table."""
    rows = [line.strip("| ").split("|") for line in RULES.splitlines() if line.startswith("| `")]
    for first, *others in rows:
        yield re.findall(r"`(\w+)`", first), [cell.strip() for cell in others]


def planned(blocks: Sequence[Mapping[str, Any]], schemes: Sequence[str]) -> dict[str, set[float | str]]:
    """The values in some blocks of each hyperparameter of these schemes."""
    found: dict[str, set[float | str]] = defaultdict(set)
    for arm in (arm for block in blocks for arm in block["arms"].values()):
        given = dict(one.split("=") for one in arm.split())
        if given["pos"] in schemes:
            own = yaml.safe_load((CONF / f"pos/{given['pos']}.yaml").read_text())
            setting = {**{f"pos.{key}": value for key, value in own.items()}, **given}
            for key in {"optim.lr", *SECOND.values()} & setting.keys():
                found[key].add(canonical(setting[key]))
    return found


def test_every_arm_of_the_table_is_searched_over_the_values_that_it_names():
    at_4_units = [block for block in TRIALS if block["units"] == [4]]
    for schemes, (rates, second, *_) in arms():
        searched = planned(at_4_units, schemes)
        assert searched["optim.lr"] == set(values(rates)), schemes
        for name, listed in re.findall(r"([a-z][a-z ]+): ([^;]+)", second):
            assert searched[SECOND[name]] == set(values(listed)), (schemes, name)
    assert {scheme for schemes, _ in arms() for scheme in schemes} == {
        re.findall(r"pos=(\w+)", arm)[0] for block in at_4_units for arm in block["arms"].values()
    }


def test_the_trials_of_the_table_are_those_in_the_results():
    (corpus,) = stated(r"`(text-\w{8})`")
    trials = searches(STUDY.on(corpus))[4 * STUDY.plan["unit"] * tokens_per_step()]
    counted = {schemes[0]: (schemes, cell) for schemes, (_, _, cell, _) in arms() if cell.endswith(" trials")}
    assert list(counted) == ["rope", "sinusoidal"]
    for schemes, cell in counted.values():
        assert f"{sum(len(trials[scheme]) for scheme in schemes)} trials" == cell


def test_every_arm_but_one_that_is_named_has_the_chosen_values_in_every_block_of_the_verdict():
    assert "With linear attention `learned` still has the sinusoid's values" in " ".join(RULES.split())
    older = [block for block in VERDICT if block not in (*LONGEST, *LONGER_T5)]
    blocks = [{**block, "arms": {key: arm for key, arm in block["arms"].items() if arm != OLDER}} for block in older]
    assert blocks != older

    for schemes, (*_, chosen) in arms():
        used = planned(blocks, schemes)
        rate, *second = values(chosen.partition(":")[0])
        assert used["optim.lr"] == {rate}, schemes
        assert set(second) <= used["pos.scale"] | used["pos.base"], schemes
        assert all(len(tried) == 1 for tried in used.values() if tried), schemes


def test_the_longest_budgets_have_the_values_that_the_rules_name():
    second = {"rope": "pos.base", "sinusoidal": "pos.scale"}
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in RULES.splitlines() if DIGITS.match(line)]
    longest = sorted(LONGEST, key=lambda block: block["units"])
    assert [block["units"] for block in longest] == [[int(units)] for units, *_ in rows]
    for (units, *of_arms, trials), block in zip(rows, longest, strict=True):
        searched = searches(STUDY.on(STUDY.corpora[0]))[int(units) * STUDY.plan["unit"] * tokens_per_step()]
        assert [len(searched[pos]) for pos in second] == numbers(trials)
        for (pos, key), chosen in zip(second.items(), of_arms, strict=True):
            used = planned([block], [pos])
            assert [used["optim.lr"], used[key]] == ([{value} for value in values(chosen)] or [set(), set()]), (
                units,
                pos,
            )
    of_t5 = stated(r"T5 has ([\d.]+) with 16, .*? and ([\d.]+) with 64")
    for block, rate in zip(LONGER_T5, of_t5, strict=True):
        assert planned([block], ["t5"])["optim.lr"] == {float(rate)}


def test_the_default_amplitude_is_the_chosen_one():
    (chosen,) = (cells[-1] for schemes, cells in arms() if schemes[0] == "sinusoidal")
    assert composed("pos=sinusoidal")["pos"]["scale"] == values(chosen)[1]


def test_trials_and_verdict_have_the_seeds_of_the_rules():
    trials, verdict = stated(r"Trials: ([\d and]+), .* Verdict: ([\d, and]+);")
    assert numbers(trials) == STUDY.plan["search_seeds"]
    assert {tuple(block["seeds"]) for block in BACKBONE} == {tuple(numbers(verdict))}


def test_no_result_but_a_trial_has_a_seed_of_the_search():
    searched = set(STUDY.plan["search_seeds"])
    for result in STUDY.results:
        assert result.setting.startswith(SEARCH) == (result.seed in searched), result


def test_the_number_of_runs_that_are_missing_is_stated():
    known, missing = {result.key for result in STUDY.results}, set()
    for line in STUDY.lines():
        missing |= {STUDY.key(line, STUDY.corpora[0])} - known
    assert stated(r"Runs missing on [\d-]+: (\d+)\.") == [str(len(missing))]


def test_every_planned_run_ends_with_a_validation():
    default = composed("experiment=claim_map")["eval_every"]
    for line in STUDY.lines():
        given = dict(one.split("=") for one in line)
        assert int(given["steps"]) % int(given.get("eval_every", default)) == 0, line


def tokens_per_step() -> int:
    config = composed("experiment=claim_map")
    return config["context"] * config["batch_size"]


def test_the_model_and_the_unit_of_budget_are_those_of_the_experiment():
    config = composed("experiment=claim_map")
    model, context, windows = stated(r"\(`model=(\w+)`\), bytes, context (\d+), (\d+) windows per step")
    steps, tokens = stated(r"(\d+) steps of ([\d,]+) bytes")
    (evaluated,) = stated(r"last validation uses (\d+) windows")
    assert int(context) == config["context"]
    assert int(windows) == config["batch_size"]
    assert int(evaluated) == config["eval_windows"]
    assert int(steps) == STUDY.plan["unit"] == config["steps"]
    assert numbers(tokens) == [tokens_per_step()]
    assert config["model"] == composed("experiment=claim_map", f"model={model}")["model"]
    assert f", {STUDY.plan['precision']}." in RULES


def test_the_experiment_s_commands_are_runs_of_the_backbone_and_its_units_those_of_the_plan():
    header = (CONF / "experiment/claim_map.yaml").read_text().partition("defaults:")[0]
    commands = " ".join(header.replace("#", " ").replace("\\", " ").split()).split("python train.py")[1:]
    for arm in (arm for block in BACKBONE for arm in block["arms"].values()):
        assert sum(arm in command and STUDY.plan["precision"] in command for command in commands) == 1, arm
    blocks = [(block["units"], block["seeds"], block["arms"].values()) for block in STUDY.plan["blocks"]]
    runs = {run for block in blocks for run in itertools.product(*block)}
    assert f"some {round(sum(units for units, *_ in runs), -2):,} units" in header
