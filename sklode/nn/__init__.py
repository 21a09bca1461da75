"""Torch modules of the Latent ODE: tensors in, tensors or distributions out.

Batch first everywhere, (batch, time, channel); draws of z0 stand in front. Times are in
``time_unit_``; a mask is True where an entry was observed.
"""

from sklode.nn.ahead import AheadBatch, AheadODE
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.encoders import ODELSTM, ODERNN, RNN
from sklode.nn.latent_ode import (
    Batch,
    LatentODE,
    Posterior,
    clip_gradient_norm,
    elbo,
    log_likelihood,
    make_batch,
    perceptron,
)
from sklode.nn.solvers import Solver
from sklode.nn.vector_fields import VectorField

__all__ = [
    "ODELSTM",
    "ODERNN",
    "RNN",
    "AheadBatch",
    "AheadODE",
    "Batch",
    "ControlPath",
    "Decoder",
    "LatentODE",
    "Posterior",
    "Solver",
    "VectorField",
    "clip_gradient_norm",
    "elbo",
    "log_likelihood",
    "make_batch",
    "perceptron",
]
