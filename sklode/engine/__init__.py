"""The unrolled CPU engine: whole sequences as single nodes of autograd.

Backpropagation through a neural ODE spends most of its time on the bookkeeping of tens
of thousands of tiny operations. Here the encoder's run over a window, and the
decoder's trajectory, are one node each: numpy forward, hand-derived numpy backward.
Only what must be sequential is; the activations' derivatives and the gradients by the
weights are computed for all steps at once.

This package knows nothing of `sklode.nn`; it takes weights and steps. Plain torch is
the reference that it is tested against, and serves what it does not cover: GPUs,
adaptive and adjoint solvers, modules of the user's own, double backward.
"""

from sklode.engine.functions import FieldWeights, decode, encode, supports

__all__ = ["FieldWeights", "decode", "encode", "supports"]
