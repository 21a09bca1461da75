"""Torch modules of the Latent ODE: tensors in, tensors or distributions out."""

from sklode.nn.ahead import AheadBatch, AheadODE
from sklode.nn.batches import Batch, make_batch
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.encoders import ODELSTM, ODERNN, RNN
from sklode.nn.latent_ode import Emission, LatentODE, Posterior, Translator
from sklode.nn.objectives import clip_gradient_norm, elbo, log_likelihood
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
    "Emission",
    "LatentODE",
    "Posterior",
    "Solver",
    "Translator",
    "VectorField",
    "clip_gradient_norm",
    "elbo",
    "log_likelihood",
    "make_batch",
]
