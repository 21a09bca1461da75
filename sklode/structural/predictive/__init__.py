"""Predictive distributions: mixtures, and the steps that lead to an answer."""
