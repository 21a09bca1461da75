"""The CPU engine: whole sequences as single nodes of autograd, compiled.

The encoder's run over a window, and the decoder's trajectory are one node each, with a
hand-derived backward pass; numba compiles it once a machine and precision.

This package knows nothing of `sklode.nn`; it takes weights and steps. Plain torch is
the reference that it is tested against, and serves what it does not cover: GPUs,
adaptive and adjoint solvers, modules of the user's own, double backward.
"""
