"""A configuration can name the parts of this package, and nothing else that could be called."""

import pytest
import yaml

from posenc.config.targets import ROOMS, target
from posenc.errors import UserError
from tests.conftest import CONF

NAMED = {
    (str(file.parent.relative_to(CONF)).replace("/", "."), named)
    for file in CONF.glob("*/**/*.yaml")
    if not file.is_relative_to(CONF / "hydra") and (named := yaml.safe_load(file.read_text()).get("_target_"))
}


@pytest.mark.parametrize(("group", "named"), sorted(NAMED))
def test_what_the_files_name_is_in_its_room(group, named):
    assert callable(target(group, named))
    assert named.startswith(ROOMS[group])


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


def test_a_group_that_there_is_not_has_no_room():
    with pytest.raises(UserError, match="foo is not a key"):
        target("foo", "posenc.positions.Rotary")
