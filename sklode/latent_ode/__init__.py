"""The paper's model: a Latent ODE over windows of rows."""

from sklode.latent_ode.network import Batch, LatentODE, Posterior

__all__ = ["Batch", "LatentODE", "Posterior"]
