"""The forecasters: sktime's contract over each of the models."""
