"""Torch modules that both networks are made of: tensors in, tensors out.

Batch first everywhere, (batch, time, channel); draws of z0 stand in front. Times are in
``time_unit_``; a mask is True where an entry was observed.
"""

from sklode.nn.autoencoder import Autoencoder, perceptron
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.encoders import ODELSTM, ODERNN, RNN, build_encoder
from sklode.nn.objective import Bound, clip_gradient_norm, elbo, log_likelihood
from sklode.nn.solvers import Solver
from sklode.nn.vector_fields import VectorField

__all__ = [
    "ODELSTM",
    "ODERNN",
    "RNN",
    "Autoencoder",
    "Bound",
    "ControlPath",
    "Decoder",
    "Solver",
    "VectorField",
    "build_encoder",
    "clip_gradient_norm",
    "elbo",
    "log_likelihood",
    "perceptron",
]
