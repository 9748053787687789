"""The command lines of benchmarks that take train.py's overrides."""

import pytest

from tests.benchmarks.scripts import script


@pytest.mark.parametrize("name", ["loop", "schemes", "together"])
def test_a_mistyped_override_is_one_sentence_also_after_the_options(name):
    process = script(name, "pos=rope", "--rounds", 1, "modle=base")
    assert (process.returncode, process.stdout) == (2, "")
    (sentence,) = process.stderr.splitlines()
    assert "modle is not a key; did you mean model" in sentence
