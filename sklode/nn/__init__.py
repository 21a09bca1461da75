"""Torch modules that both networks are made of: tensors in, tensors out.

Batch first everywhere, (batch, time, channel); draws of z0 stand in front. Times are in
``time_unit_``; a mask is True where an entry was observed.
"""

from sklode.nn.autoencoder import perceptron
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.encoders import ODELSTM, ODERNN, RNN
from sklode.nn.objective import clip_gradient_norm, elbo, log_likelihood
from sklode.nn.solvers import Solver
from sklode.nn.vector_fields import VectorField

__all__ = [
    "ODELSTM",
    "ODERNN",
    "RNN",
    "ControlPath",
    "Decoder",
    "Solver",
    "VectorField",
    "clip_gradient_norm",
    "elbo",
    "log_likelihood",
    "perceptron",
]
