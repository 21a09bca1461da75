"""Transformers and a detector of sktime over the structural model."""

from sklode.transformers.detector import StructuralDetector
from sklode.transformers.imputer import StructuralImputer
from sklode.transformers.resampler import StructuralResampler

__all__ = ["StructuralDetector", "StructuralImputer", "StructuralResampler"]
