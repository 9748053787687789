"""What a compiler is given, before it generates code."""

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd

from posenc.model import Transformer
from posenc.objectives.objective import loss_of
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
    assert lookups == [4]  # cos and sin of the page, and of the offset in it
