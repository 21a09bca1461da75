"""A training, epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sklode.plotting import canvas

if TYPE_CHECKING:
    from sktime.forecasting.base import BaseForecaster

# in which axes a column is drawn, and how it is called there
_HISTORY = {
    "loss": (0, "training loss"),
    "validation_loss": (0, "validation loss"),
    "log_likelihood": (1, "log-likelihood"),
    "kl": (1, "KL divergence"),
    "grad_norm": (2, "gradient norm"),
}
# of each axes
_UNITS = (
    "loss per observed value",
    "nats per observed value",
    "norm before clipping",
)


def plot_history(
    forecaster: BaseForecaster, *, ax: canvas.Given = None
) -> canvas.AxesArray:
    """Plot a training epoch by epoch: losses, parts of the bound, gradient norms.

    Parameters
    ----------
    forecaster : Latent ODE forecaster
        Fitted.
    ax : array of Axes, optional
        Three to draw on; None: a new figure.

    Returns
    -------
    ndarray of Axes
        Three: loss and validation loss; log-likelihood and KL divergence, per observed
        value; mean norm of the gradients before clipping, with the threshold
        ``clip_norm``. A vertical line marks the epoch whose weights are kept, crosses
        those that diverged and were restored.

    Raises
    ------
    TypeError, NotFittedError, ValueError
        If ``forecaster`` is none, not fitted, or trained for no epoch.
    """
    canvas.check_fitted(
        forecaster,
        method="plot_history",
        has="clip_norm",
        kind="that trains a network",
    )
    history, threshold = forecaster.history_, forecaster.clip_norm
    if not len(history):
        why = (
            "finetune_epochs=0 trains for none. Pass a forecaster that was trained"
            if forecaster.network_ is not None
            else "no network was tried. Fit with guard=False or model='paper', or give "
            "more rows or series"
        )
        raise ValueError(
            "plot_history needs the history of a training; got one without an epoch: "
            f"{why}."
        )
    sheet = canvas.axes_of(ax, shape=(3,), size=(3.8, 3.6), n_columns=3)
    norms = sheet[2]
    epochs = history.index.to_numpy()
    styles = iter(canvas.styles_of(_HISTORY))
    for column, (place, label) in _HISTORY.items():
        style = next(styles)
        values = history[column].to_numpy(dtype=float)
        # without a held-out part there is no validation loss, and no entry of it
        if np.isfinite(values).any():
            axes = sheet.ravel()[place]
            canvas.line(axes, x=epochs, values=values, style=style, label=label)
    restored = epochs[history["restored_epoch"].to_numpy() > 0]
    for axes, unit in zip(sheet, _UNITS, strict=True):
        axes.set(xlabel="epoch", ylabel=unit)
        axes.xaxis.get_major_locator().set_params(integer=True)
        best = forecaster.best_epoch_
        label = f"best epoch, {best}"
        axes.axvline(best, label=label, color=canvas.GUIDE, lw=1.2, ls=":")
        if len(restored):
            # x in epochs, y in shares of the axes: just above its lower edge
            axes.plot(
                restored,
                np.full(len(restored), 0.03),
                "kx",
                transform=axes.get_xaxis_transform(),
                label="diverged, restored",
            )
    norms.margins(y=0.15)
    # norms fall by powers of ten, but a logarithm has no place for zeros alone
    if (history["grad_norm"] > 0).any():
        norms.set_yscale("log")
    if threshold is not None:
        label = f"clip_norm = {threshold:g}"
        norms.axhline(threshold, label=label, color=canvas.INK, lw=1, ls="--")
    canvas.add_legend(sheet, is_new=ax is None)
    return sheet
