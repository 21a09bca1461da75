"""The CPU engine: whole sequences as single nodes of autograd, compiled.

The encoder's run and the decoder's trajectory have a hand-derived backward pass; numba
compiles them once a machine and precision.

It takes weights and steps. Plain torch is the reference in tests, and serves what it
does not cover: GPUs, adaptive solvers, modules of the user's own, double backward.
"""
