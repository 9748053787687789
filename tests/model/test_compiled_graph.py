"""What a compiler is given, before it generates code."""

import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd

from posenc.model import Transformer
from posenc.model.cross_entropy import summed_cross_entropy
from posenc.objectives.objective import IGNORE_INDEX, loss_of
from posenc.positions import Rotary


def test_a_compiled_step_computes_cos_and_sin_once_for_all_layers():
    lookups = []

    def count(graph, _):
        lookups.append(sum(node.target is torch.ops.aten.index.Tensor for node in graph.graph.nodes))
        return graph

    tokens = torch.zeros(1, 8, dtype=torch.long)
    model = Transformer(vocab_size=16, context=8, layers=3, width=8, heads=2, scheme=Rotary(4))
    # The partition that Inductor takes, which merges equal nodes.
    backend = aot_autograd(
        fw_compiler=count, bw_compiler=lambda graph, _: graph, partition_fn=min_cut_rematerialization_partition
    )
    torch.compile(lambda *batch: loss_of(model, *batch), backend=backend)(tokens, tokens)
    assert lookups == [2]  # of the page, and of the offset in it


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler does what torch deprecates
def test_the_gradient_of_the_chunked_loss_has_no_scatter():
    """It would write zeros to memory first; Inductor turns a scatter into zeros into a comparison."""
    operations = []

    def list_operations(graph):
        operations.append([str(node.target) for node in graph.nodes])

    x, weight, targets = torch.ones(8, 4), torch.ones(65, 4, requires_grad=True), torch.arange(8)
    compiled = torch.compile(summed_cross_entropy, options={"post_grad_custom_post_pass": list_operations})
    compiled(x, weight, targets, IGNORE_INDEX)
    (forward,) = operations  # which has the gradient too
    assert forward.count("aten.mm.default") == 2
    assert "aten.eq.Tensor" in forward
    assert not any(name.startswith(("aten.scatter", "aten.index_put")) for name in forward)
