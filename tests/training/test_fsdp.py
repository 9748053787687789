"""The sharded loss, on one rank."""

from collections.abc import Iterator

import pytest
import torch
from torch.distributed.tensor import DTensor

from posenc.model import Transformer
from posenc.positions import Rotary, Sinusoidal
from posenc.training.attention_probe import AttentionProbe
from posenc.training.fsdp import ShardedLoss

T = 8


@pytest.fixture
def _one_rank() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports what torch deprecates
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # and reads what it warns of
@pytest.mark.usefixtures("_one_rank")
def test_measuring_the_heads_compiles_no_layer_again():
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph.forward

    model = Transformer(50, T, 2, 32, 2, Rotary(16))
    loss = ShardedLoss(model, torch.device("cpu"), lambda layer: torch.compile(layer, backend=backend, dynamic=False))
    windows = torch.randint(50, (3, T + 1), generator=torch.Generator().manual_seed(0))
    before = loss(windows[:, :-1], windows[:, 1:])
    compiled = len(graphs)
    with loss.unsharded(layers=True):
        AttentionProbe(windows, T).measure(model)
    assert torch.equal(loss(windows[:, :-1], windows[:, 1:]), before)
    assert len(graphs) == compiled > 0


@pytest.mark.usefixtures("_one_rank")
def test_the_share_of_the_encoding_is_measured_without_gathering_the_layers():
    model = Transformer(50, T, 2, 32, 2, Sinusoidal(32))
    probe = AttentionProbe(torch.randint(50, (3, T + 1), generator=torch.Generator().manual_seed(0)), T)
    expected = probe.position_share(model)
    loss = ShardedLoss(model, torch.device("cpu"), lambda layer: layer)
    with loss.unsharded(layers=False):
        assert probe.position_share(model) == expected
        assert all(isinstance(weight, DTensor) for weight in model.blocks.parameters())
        assert not isinstance(model.embedding.weight, DTensor)
