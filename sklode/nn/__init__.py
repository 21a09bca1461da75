"""Torch modules of the Latent ODE: tensors in, tensors or distributions out."""

from sklode.nn.anchors import Anchor
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.encoders import ODELSTM, ODERNN, RNN
from sklode.nn.latent_ode import Batch, Emission, LatentODE, Posterior, Translator
from sklode.nn.linear_anchors import LinearAnchor
from sklode.nn.objectives import clip_gradient_norm, elbo, log_likelihood
from sklode.nn.solvers import AdaptiveSolver, FixedStepSolver
from sklode.nn.vector_fields import VectorField

__all__ = [
    "ODELSTM",
    "ODERNN",
    "RNN",
    "AdaptiveSolver",
    "Anchor",
    "Batch",
    "ControlPath",
    "Decoder",
    "Emission",
    "FixedStepSolver",
    "LatentODE",
    "LinearAnchor",
    "Posterior",
    "Translator",
    "VectorField",
    "clip_gradient_norm",
    "elbo",
    "log_likelihood",
]
