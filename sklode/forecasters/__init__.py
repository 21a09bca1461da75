"""The forecasters: sktime's contract over Latent ODEs, and over a level alone."""
