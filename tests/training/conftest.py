import pytest
import torch

from tests.training.trainees import Recording


@pytest.fixture
def sgd(monkeypatch: pytest.MonkeyPatch) -> type[Recording]:
    """Take plain steps along the gradient, and record them."""
    monkeypatch.setattr(torch.optim, "AdamW", Recording)
    return Recording
