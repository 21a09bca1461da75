"""CPU engines: whole sequences as single nodes of autograd.

Backpropagation through a neural ODE spends most of its time on the bookkeeping of tens
of thousands of tiny operations. Here the encoder's run over a window, and the
decoder's trajectory, are one node each, with a hand-derived backward pass. There are
two engines:

- **fused** (`sklode.engine.fused`): one compiled call for a whole batch. It needs
  numba, which compiles it once a machine and precision.
- **unrolled** (`sklode.engine.sequences`): numpy, step by step; needs nothing else.

This package knows nothing of `sklode.nn`; it takes weights and steps. Plain torch is
the reference that both are tested against, and serves what they do not cover: GPUs,
adaptive and adjoint solvers, modules of the user's own, double backward.
"""

from sklode.engine.choice import choose, is_compiled, keeps_compiled
from sklode.engine.functions import (
    CellWeights,
    FieldWeights,
    decode,
    decode_at,
    emit,
    encode,
    supports,
)

__all__ = [
    "CellWeights",
    "FieldWeights",
    "choose",
    "decode",
    "decode_at",
    "emit",
    "encode",
    "is_compiled",
    "keeps_compiled",
    "supports",
]
