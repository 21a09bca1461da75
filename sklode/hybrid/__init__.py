"""The network that looks ahead from any row, beside the structural model."""

from sklode.hybrid.network import HybridBatch, HybridODE

__all__ = ["HybridBatch", "HybridODE"]
