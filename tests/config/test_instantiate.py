"""A configuration can name the parts of this package and of those that are declared here, and nothing else."""

import re
import shutil
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from posenc.config.instantiate import GROUPS, build, build_model, target
from posenc.config.schema import check_groups
from posenc.errors import UserError
from posenc.interventions import Intervention
from posenc.objectives.objective import Causal
from posenc.positions import PositionScheme
from tests import conftest
from tests.conftest import CONF, ROOT, only

NAMED = {
    (str(file.parent.relative_to(CONF)).replace("/", "."), named)
    for file in CONF.glob("*/**/*.yaml")
    if not file.is_relative_to(CONF / "hydra") and (named := yaml.safe_load(file.read_text()).get("_target_"))
}


@pytest.mark.parametrize(("group", "named"), sorted(NAMED))
def test_what_the_files_name_belongs_to_its_group(group, named):
    assert callable(target(group, named))
    assert named.startswith(GROUPS[group].package)


@pytest.mark.parametrize(
    "named",
    [
        "os.system",
        "posenc.positions.base.torch.save",
        "posenc.positions.rotary.math.sqrt",
        "posenc.positions.bias.torch",
        "posenc.storage.atomic.atomic_write",
        "posenc.positions",
        "posenc.positions.",
        "posenc.positions..Rotary",
        "posenc.positions._Rotary",
        "posenc.positions.bias.__builtins__",
        "posenc.positions.Rotary.forward",
        "posenc.positions.Rotary\nos.system",
        "posenc.positions.nothing.Rotary",
        "posenc.positionsx.Rotary",
        "Rotary",
        "",
        None,
        5,
    ],
)
def test_anything_else_is_refused_before_it_is_called(named):
    with pytest.raises(UserError, match=r"must name a class or function of posenc\.positions"):
        target("pos", named)


def test_a_name_that_a_module_does_not_have_is_said_not_to_exist():
    with pytest.raises(UserError, match=r"; there is no posenc\.positions\.rotary\.Rotari$"):
        target("pos", "posenc.positions.rotary.Rotari")


@pytest.mark.parametrize(
    ("group", "named", "values"),
    [
        ("pos", "posenc.positions.permute_layout", {}),
        ("objective", "posenc.objectives.objective.loss_of", {}),
        ("tokenizer", "posenc.data.tokenizers.smallest_dtype", {"vocab_size": 256}),
        ("tokenizer", "posenc.data.tokenizers.Tokenizer", {}),
        ("model", "posenc.model.Family", {}),
        ("attention", "posenc.model.Family", {}),
        ("intervention", "posenc.interventions.base.InLayer", {}),
        ("objective", "posenc.objectives.objective.Sampling", {"tokens": 1, "temperature": 1.0, "seed": 0}),
    ],
)
def test_what_is_in_the_package_and_is_no_choice_of_the_group_is_refused(group, named, values):
    def use(config):
        check_groups(config, [group])
        supplied: dict[str, Any] = dict.fromkeys(GROUPS[group].supplied)
        return build(config, group, **supplied)

    with pytest.raises(UserError, match=rf"{group}._target_={re.escape(named)} (is not|has no|cannot|does not)"):
        use({group: {"_target_": named, **values}})


class Tabulated(PositionScheme):
    def __init__(self, options: dict[str, int]) -> None:
        super().__init__()
        self.options = options


def test_a_mapping_is_a_group_only_where_there_is_one_of_its_name(monkeypatch):
    declared = SimpleNamespace(value="mine:Tabulated", load=lambda: Tabulated)
    monkeypatch.setattr("posenc.config.instantiate.entry_points", lambda group: [declared])  # noqa: ARG005
    values = {"_target_": "mine.Tabulated", "options": {"a": 1}}
    check_groups({"pos": values}, ["pos"])
    assert build({"pos": values}, "pos").options == {"a": 1}
    with pytest.raises(UserError, match=r"^pos\.options=5 must be a mapping"):
        check_groups({"pos": {**values, "options": 5}}, ["pos"])


def test_an_unknown_group_is_refused():
    with pytest.raises(UserError, match="foo is not a key"):
        target("foo", "posenc.positions.Rotary")


MINE = """\
import posenc.positions


class Louder(posenc.positions.PositionScheme):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = factor

    def embed(self, x, positions):
        return self.factor * x


def undeclared(factor: float = 2.0):
    raise AssertionError("called")
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout with two files in conf/pos that name what a package has; and a folder with the package installed."""
    shutil.copy(ROOT / "train.py", tmp_path)
    shutil.copytree(CONF, tmp_path / "conf")
    for choice, name in (("louder", "Louder"), ("undeclared", "undeclared")):
        (tmp_path / "conf" / "pos" / f"{choice}.yaml").write_text(f"_target_: mine.{name}\nfactor: 3.0\n")
    described = tmp_path / "installed" / "mine-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[posenc.pos]\nlouder = mine:Louder\n")
    (described.parent / "mine.py").write_text(MINE)
    return tmp_path


def python(folder, *arguments, installed):
    path = {"PYTHONPATH": str(folder / "installed")} if installed else {}
    return conftest.python(*arguments, cwd=folder, env=path)


def test_a_scheme_of_an_installed_package_is_trained_and_its_run_is_read_where_it_is_installed(checkout):
    cache = f"cache={ROOT / 'data' / 'cache'}"
    smoke = ["train.py", "experiment=smoke", "trainer=cpu", "logger=csv", "pos=louder", cache]
    wrong = python(checkout, *smoke, "pos.factor=loud", installed=True)
    assert wrong.stderr == "train.py: pos.factor=loud must be a finite number\n"
    trained = python(checkout, *smoke, installed=True)
    assert trained.returncode == 0, trained.stderr
    run = str(only(checkout / "runs" / "smoke" / "louder"))
    assert python(checkout, "-m", "posenc.sample", run, installed=True).returncode == 0
    elsewhere = python(checkout, "-m", "posenc.sample", run, installed=False)
    assert elsewhere.returncode == 2
    assert "pos._target_=mine.Louder must name a class or function of posenc.positions" in elsewhere.stderr
    assert "that an installed package declares as an entry point of posenc.pos" in elsewhere.stderr


def test_what_an_installed_package_does_not_declare_is_refused(checkout):
    refused = python(checkout, "train.py", "logger=csv", "pos=undeclared", installed=True)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "pos._target_=mine.undeclared must name" in refused.stderr


@pytest.mark.parametrize("layers", ["[-1]", "[]", "[0,4]", "[0,0]"])
def test_an_intervention_in_no_layer_of_the_model_is_refused(layers):
    config = conftest.composed("intervention=offset_bias", f"intervention.in_layers={layers}")
    with pytest.raises(UserError, match="must be different ones of the model's layers, 0 to 3$"):
        build_model(config, Causal(256))


def test_the_keys_of_another_package_s_intervention_mean_what_it_says(monkeypatch):
    class FromVerse(Intervention):
        def __init__(self, scheme, start: str) -> None:
            super().__init__(scheme)
            self.start = start

        def check_effect(self, layers, context, steps):  # noqa: ARG002
            if self.start == "Rev 22":
                raise ValueError(f"start={self.start} must be before the last chapter")
            if self.start == "Tob 1":
                raise ValueError("this text has no Apocrypha")

    declare(monkeypatch, FromVerse)
    config = conftest.composed("pos=none")
    model = build_model({**config, "intervention": {"_target_": "mine.FromVerse", "start": "Gen 1"}}, Causal(256))
    assert model.scheme.start == "Gen 1"
    with pytest.raises(UserError, match=r"^intervention\.start=Rev 22 must be before the last chapter$"):
        build_model({**config, "intervention": {"_target_": "mine.FromVerse", "start": "Rev 22"}}, Causal(256))
    with pytest.raises(UserError, match="^this text has no Apocrypha$"):
        build_model({**config, "intervention": {"_target_": "mine.FromVerse", "start": "Tob 1"}}, Causal(256))


def declare(monkeypatch, scheme: type) -> None:
    """As an entry point of every group."""
    declared = SimpleNamespace(value=f"mine:{scheme.__name__}", load=lambda: scheme)
    monkeypatch.setattr("posenc.config.instantiate.entry_points", lambda group: [declared])  # noqa: ARG005


def test_what_a_scheme_draws_in_its_constructor_follows_from_the_seed(monkeypatch):
    class Drawn(PositionScheme):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3))

    declare(monkeypatch, Drawn)

    def drawn(seed: int) -> list[float]:
        config = {**conftest.composed(f"seed={seed}"), "pos": {"_target_": "mine.Drawn"}}
        return build_model(config, Causal(256)).scheme.weight.tolist()

    assert drawn(0) == drawn(0) != drawn(1)


def test_an_argument_without_a_type_is_named(monkeypatch):
    class Untyped(PositionScheme):
        def __init__(self, slope=0.5):  # noqa: ARG002
            super().__init__()

    declare(monkeypatch, Untyped)
    with pytest.raises(UserError, match=r"^pos\.slope has no type: annotate it in the signature"):
        check_groups({"pos": {"_target_": "mine.Untyped", "slope": 1}}, ["pos"])


def test_a_key_that_a_file_lacks_is_named_with_how_to_give_it(monkeypatch):
    class Sized(PositionScheme):
        def __init__(self, heads: int) -> None:  # noqa: ARG002
            super().__init__()

    declare(monkeypatch, Sized)
    with pytest.raises(UserError, match=r"^pos\.heads is missing; add it to the YAML file, or as \+pos\.heads=$"):
        check_groups({"pos": {"_target_": "mine.Sized"}}, ["pos"])


@pytest.mark.parametrize(
    ("more", "content", "said"),
    [
        (
            "",
            "name: mine\n",
            "name is missing: give name=; a file in conf/experiment must begin with the line # @package",
        ),
        (
            "name=a",
            "name: mine\n",
            "experiment is not a key: a file in conf/experiment must begin with the line # @pack",
        ),
        ("", "# @package _global_\nname: mine\n  steps: 3\n", "mine.yaml, line 3: mapping values are not allowed here"),
    ],
)
def test_what_is_wrong_with_an_experiment_of_one_s_own_is_said(more, content, said, checkout):
    (checkout / "conf" / "experiment" / "mine.yaml").write_text(content)
    refused = python(checkout, "train.py", "logger=csv", "experiment=mine", *more.split(), installed=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert said in refused.stderr
