"""Torch modules of the Latent ODE: tensors in, tensors or distributions out."""

from sklode.nn.batches import Batch, make_batch
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.encoders import ODELSTM, ODERNN, RNN
from sklode.nn.latent_ode import Emission, LatentODE, Posterior, Translator
from sklode.nn.objectives import clip_gradient_norm, elbo, log_likelihood
from sklode.nn.solvers import AdaptiveSolver, FixedStepSolver
from sklode.nn.vector_fields import VectorField

__all__ = [
    "ODELSTM",
    "ODERNN",
    "RNN",
    "AdaptiveSolver",
    "Batch",
    "ControlPath",
    "Decoder",
    "Emission",
    "FixedStepSolver",
    "LatentODE",
    "Posterior",
    "Translator",
    "VectorField",
    "clip_gradient_norm",
    "elbo",
    "log_likelihood",
    "make_batch",
]
