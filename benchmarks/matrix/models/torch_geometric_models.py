"""Layers of torch_geometric on a small graph: those that attend, judged by the weights that they return, and others that mix nodes.

A layer that gives no weights is judged by what it does: where a node's output changes with another node's input, the layer mixes
nodes, and has to be recorded or listed.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import overt
from benchmarks.matrix.models.hugging_face import NotBuilt
from benchmarks.matrix.verdicts import Verdict, error_line

NODES, WIDTH, HEADS, EDGES = 9, 16, 4, 24
CLOSE = 1e-5
Inputs = dict[str, Tensor]


def _inputs() -> Inputs:
    draw = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES, (2, EDGES), generator=draw)
    return {
        "x": torch.randn(NODES, WIDTH, generator=draw),
        "edges": edges[:, edges[1].argsort()],
        "features": torch.randn(EDGES, 5, generator=draw),
        "kinds": torch.randint(0, 2, (EDGES,), generator=draw),
        "points": torch.randn(NODES, 3, generator=draw),
        "graphs": torch.tensor([0] * 4 + [1] * 5),
    }


def _heads(name: str, *more: str, **options: Any) -> tuple[Callable[[Any], nn.Module], tuple[str, ...]]:
    return lambda g: getattr(g, name)(WIDTH, WIDTH // HEADS, heads=HEADS, **options), ("x", "edges", *more)


def _plain(name: str, *more: str, **options: Any) -> tuple[Callable[[Any], nn.Module], tuple[str, ...]]:
    return lambda g: getattr(g, name)(WIDTH, WIDTH, **options), ("x", "edges", *more)


ATTENDING: dict[str, tuple[Callable[[Any], nn.Module], tuple[str, ...]]] = {
    "GATConv": _heads("GATConv"),
    "GATConv, edge features": _heads("GATConv", "features", edge_dim=5),
    "GATConv, mean of heads": _heads("GATConv", concat=False),
    "GATv2Conv": _heads("GATv2Conv"),
    "GATv2Conv, shared weights": _heads("GATv2Conv", share_weights=True),
    "TransformerConv": _heads("TransformerConv"),
    "TransformerConv, gated": _heads("TransformerConv", beta=True),
    "TransformerConv, edge features": _heads("TransformerConv", "features", edge_dim=5),
}
OTHERS: dict[str, tuple[Callable[[Any], nn.Module], tuple[str, ...]]] = {
    "SuperGATConv": _heads("SuperGATConv"),
    "GeneralConv": _plain("GeneralConv", attention=True, heads=2),
    "AGNNConv": (lambda g: g.AGNNConv(), ("x", "edges")),
    "RGATConv": _heads("RGATConv", "kinds", num_relations=2),
    "FAConv": (lambda g: g.FAConv(WIDTH), ("x", "x", "edges")),
    "FeaStConv": _plain("FeaStConv", heads=2),
    "PointTransformerConv": (lambda g: g.PointTransformerConv(WIDTH, WIDTH), ("x", "points", "edges")),
    "GENConv": _plain("GENConv"),
    "GCNConv": _plain("GCNConv"),
    "SAGEConv": _plain("SAGEConv"),
    "SAGEConv, maximum": _plain("SAGEConv", aggr="max"),
    "SAGEConv, LSTM": _plain("SAGEConv", aggr="lstm"),
    "GINConv": (lambda g: g.GINConv(nn.Linear(WIDTH, WIDTH)), ("x", "edges")),
    "GINEConv": (lambda g: g.GINEConv(nn.Linear(WIDTH, WIDTH), edge_dim=5), ("x", "edges", "features")),
    "EdgeConv": (lambda g: g.EdgeConv(nn.Linear(2 * WIDTH, WIDTH)), ("x", "edges")),
    "GraphConv": _plain("GraphConv"),
    "GatedGraphConv": (lambda g: g.GatedGraphConv(WIDTH, 2), ("x", "edges")),
    "ResGatedGraphConv": _plain("ResGatedGraphConv"),
    "ChebConv": _plain("ChebConv", K=2),
    "ARMAConv": _plain("ARMAConv"),
    "TAGConv": _plain("TAGConv"),
    "SGConv": _plain("SGConv"),
    "APPNP": (lambda g: g.APPNP(2, 0.1), ("x", "edges")),
    "ClusterGCNConv": _plain("ClusterGCNConv"),
    "LEConv": _plain("LEConv"),
    "RGCNConv": _plain("RGCNConv", "kinds", num_relations=2),
    "FiLMConv": _plain("FiLMConv"),
    "HypergraphConv": _plain("HypergraphConv"),
    "PNAConv": _plain(
        "PNAConv", aggregators=["mean", "max", "std"], scalers=["identity"], deg=torch.tensor([1, 2, 3]), towers=1
    ),
    "NNConv": (lambda g: g.NNConv(WIDTH, WIDTH, nn.Linear(5, WIDTH * WIDTH)), ("x", "edges", "features")),
    "GPSConv": (lambda g: g.GPSConv(WIDTH, g.GINConv(nn.Linear(WIDTH, WIDTH)), heads=HEADS), ("x", "edges")),
    "GraphNorm": (lambda g: g.GraphNorm(WIDTH), ("x", "graphs")),
}


def names() -> list[str]:
    """Every case."""
    return [*ATTENDING, *OTHERS]


def run_all(name: str) -> dict[str, Any]:
    """What is said of recording it."""
    import torch_geometric.nn

    make, arguments = (ATTENDING | OTHERS)[name]
    torch.manual_seed(0)
    try:
        layer = nn.Sequential(nn.Linear(WIDTH, WIDTH)).append(make(torch_geometric.nn)).eval()
        inputs = _inputs()
        run(layer, arguments, inputs)
    except Exception as error:  # whatever the library raises
        raise NotBuilt(error_line(error)) from error
    return {"class": name, "kind": "graphs", "recording eager": _judged(name, layer, arguments, inputs).plain()}


def run(layer: nn.Module, arguments: tuple[str, ...], inputs: Inputs, **options: Any) -> Any:
    """Its output, behind a linear map of each node."""
    torch.manual_seed(1)
    first, conv = layer.children()
    tensors = [first(inputs[each]) if each == "x" else inputs[each] for each in arguments]
    return conv(*tensors, **options)


class Running(nn.Module):
    """The two modules as one model, which the recorder sees run."""

    def __init__(self, layer: nn.Module, arguments: tuple[str, ...]):
        super().__init__()
        self.layer = layer
        self.arguments = arguments

    def forward(self, inputs: Inputs) -> Any:
        """The output of the layer."""
        return run(self.layer, self.arguments, inputs)


def _judged(name: str, layer: nn.Module, arguments: tuple[str, ...], inputs: Inputs) -> Verdict:
    model = Running(layer, arguments)
    alone = model(inputs)
    with overt.lens.record(model) as recording:
        output = model(inputs)
    if not torch.equal(alone, output):
        return Verdict("wrong", "recording changes the output")
    missing = [(str(layer), str(reason)) for layer, reason in recording.missing]
    why, recorded = "; ".join(f"{each}: {reason}" for each, reason in missing), len(recording)
    numbers: dict[str, Any] = {"recorded": recorded}
    if not recording.calls and not missing:
        return (
            Verdict("wrong", "silent miss", numbers)
            if _mixes(model, inputs)
            else Verdict("exact", "no attention in it", numbers)
        )
    if recording.calls and not recording.verify().holds:
        return Verdict("wrong", "a recorded call differs from the model's own", numbers)
    if name in ATTENDING and recording.calls:
        far = _apart(recording, run(layer, arguments, inputs, return_attention_weights=True)[1])
        numbers["off"] = far
        if far > CLOSE:
            return Verdict("wrong", f"weights are {far:.1e} from those that the layer returns", numbers)
    if not missing:
        return Verdict("exact", "", numbers)
    return Verdict("whole" if recorded else "missing", why, numbers)


def _apart(recording: Any, returned: tuple[Tensor, Tensor]) -> float:
    """How far the recorded weights are from those that the layer returns, edge by edge."""
    (source, target), weights = returned
    dense = torch.zeros(weights.shape[1], NODES, NODES, dtype=torch.float64)
    for edge in range(len(source)):
        dense[:, target[edge], source[edge]] += weights[edge].double()
    recorded = torch.stack([recording[0, head].weights()[0].double() for head in range(len(dense))])
    return float((recorded - dense).abs().max())


def _mixes(model: nn.Module, inputs: Inputs) -> bool:
    """Whether a node's output changes with another node's input."""
    changed = inputs | {"x": inputs["x"].clone()}
    changed["x"][0] += 1
    apart = (model(inputs) - model(changed)).abs().amax(-1)
    return bool((apart[1:] > 1e-5 * max(1.0, float(apart.max()))).any()) or math.isnan(float(apart.max()))
