"""What a pass costs, as the windows grow."""

import tracemalloc

import pytest
import torch
from torch import Tensor

from sklode.nn import Batch, LatentODE
from tests.networks import latent_ode


def regular(n_stamps: int) -> Batch:
    """Return windows without gaps, of which the encoder sees one half."""
    times = 0.8 * torch.arange(n_stamps).expand(8, -1)
    values = torch.randn(8, n_stamps, 2)
    return Batch(times, values, torch.ones_like(values) > 0, n_stamps // 2)


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
@pytest.mark.parametrize("engine", ["fused", "eager"])
def test_memory_grows_linearly_with_the_number_of_stamps(engine: str) -> None:
    network = latent_ode("ode-lstm", engine=engine)
    bytes_kept(network, regular(16))  # leaves out what is made on first use
    single, double = (bytes_kept(network, regular(n)) for n in (80, 160))
    # the compiled engine's working memory does not grow at all
    assert (1.2 if engine == "fused" else 1.5) < double / single < 2.3
