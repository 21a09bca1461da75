"""What a pass costs, as the windows grow."""

import tracemalloc

import pytest
import torch
from torch import Tensor

from sklode.nn import Batch, LatentODE
from tests.networks import field, latent_ode
from tests.problems import Recorder


def regular(n_stamps: int, n_series: int = 8) -> Batch:
    """Return windows without gaps, of which the encoder sees one half."""
    times = 0.8 * torch.arange(n_stamps).expand(n_series, -1)
    values = torch.randn(n_series, n_stamps, 2)
    return Batch(
        times, values, torch.ones_like(values, dtype=torch.bool), n_stamps // 2
    )


def bytes_kept(network: LatentODE, batch: Batch) -> int:
    """Return the most bytes that a forward and a backward pass hold.

    Counts numpy's arrays and the distinct tensors that autograd keeps.
    """
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    tracemalloc.start()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        bound = network(batch)
        (bound.log_likelihood - bound.kl).sum().backward()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak + sum(kept.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rnn", "ode-rnn", "ode-lstm"])
@pytest.mark.parametrize("engine", ["fused", "eager"])
def test_memory_grows_linearly_with_the_number_of_stamps(
    kind: str, engine: str
) -> None:
    network = latent_ode(kind, engine=engine)
    bytes_kept(network, regular(16))  # leaves out what is made on first use
    single, double = (bytes_kept(network, regular(n)) for n in (80, 160))
    # the compiled engine's working memory does not grow at all
    assert (1.2 if engine == "fused" else 1.5) < double / single < 2.3


def test_field_is_evaluated_as_often_for_one_series_as_for_many() -> None:
    # nobody solves over the union of all stamps
    counts = []
    for n_series in (1, 12):
        network = latent_ode("ode-lstm", engine="eager")
        recorders = Recorder(field(5)), Recorder(field(3))
        network.encoder.vector_field, network.decoder.vector_field = recorders
        times = torch.linspace(0, 6, 12).repeat(n_series, 1)
        times[:, 1:-1] += 0.2 * torch.rand(n_series, 10)
        values = torch.randn(n_series, 12, 2)
        network(Batch(times, values, torch.ones_like(values) > 0, 12))
        counts.append([len(recorder.states) for recorder in recorders])
    assert counts[0] == counts[1]
