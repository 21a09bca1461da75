"""The Latent ODE with an ODE-LSTM encoder, the paper's."""

from sklode.forecasters.network import NetworkForecaster


class LatentODELSTMForecaster(NetworkForecaster):
    """Latent ODE with an ODE-LSTM encoder (Coelho et al.), in continuous time.

    An LSTM whose hidden state flows along a neural ODE between observations reads a
    window of them backward in time; a second one carries the latent state to any other
    stamp. With ``clip_norm`` it is the paper's "Latent ODE-LSTM + gradient clipping".

    Parameters
    ----------
    hidden_size : int, default=32
        Size of the encoder's hidden state h.
    latent_size : int, default=8
        Size of the latent state z.
    field_width, field_depth : int, default=32, 1
        Width and number of the hidden layers of the two vector fields.
    emission_width : int, default=64
        Width of the one hidden layer from z to the observation.
    window_length : int, optional
        Observations that the encoder sees. None: 48, at most all but one of the longest
        series; with ``model="paper"`` twice the horizon, between 24 and 60, so that
        two fit into the longest series, one of 8 series or more.
    horizon : int, optional
        With ``model="paper"``: observations after those seen that a training window
        also predicts. None: the farthest step of the ``fh`` given to ``fit``; else the
        ``window_length`` given; else 20, at most a third of the longest series.
    thinning : float, default=0.5
        Observation dropout: up to this share of a training window's observations is
        hidden from the encoder; with ``model="paper"`` in so many windows the first
        ones, at most ``horizon``: the decoder learns to run backward. 0: the paper's.
    model : {"hybrid", "paper"}, default="hybrid"
        "hybrid": the model of `StructuralForecaster`, and beside it a network that
        looks ahead from the last row, and counts as ``guard`` finds. "paper": the
        paper's model, a network alone, of whole windows.
    bounds : pair or dict of pairs, optional
        With ``model="hybrid"``: least and greatest value of y, None where there is no
        end: ``(0, 100)``, ``(0, None)``; of columns a dict. No answer lies beyond them.
        Between two the logit of y is modelled where that explains y better, above one
        the logarithm. Zero is a bound by itself where no value is below.
    error : column or dict, optional
        With ``model="hybrid"``: column of X with the standard deviation of each row's
        error of measurement, in the unit of y; of columns of y a dict. 0 is exact;
        infinite or NaN: the value does not count. It need not be known ahead, where the
        usual error is taken. Rows of the same stamp are then several measurements. The
        network counts rows alike.
    holidays : str, tuple, Series, DataFrame or dict, optional
        With ``model="hybrid"``: days that have names: a country's, by its code
        ("DE", "US-CA"), of several, by the package ``holidays`` (the extra
        ``calendars``); or a table of names and dates: a Series of names over dates,
        columns ``ds`` and ``holiday``, or a dict. Kinds of days have effects of their
        own, on a day's shape too, which shrink towards what all have in common; days
        are those of the index's time zone. The network does not see them.
    method : {"rk4", "midpoint", "euler", "dopri5", "dopri5_adjoint"}, default="rk4"
        Of solving the equations: fixed steps ("rk4" is the 3/8 rule), or adaptive,
        with gradients through the steps or by the paper's adjoint equation.
    step_size : float, default=1.0
        Length of a fixed step in units of ``time_unit_``.
    clip_norm : float or None, default=1.0
        Threshold of norm gradient clipping over all parameters. None: no clipping.
    kl_weight : float, default=1.0
        Weight of the KL term; of many rows less, by the square of 300 / rows. With
        ``model="paper"`` a fiftieth of it while the windows grow.
    max_epochs : int, optional
        Epochs of at most 32 batches. None: as many as make about 900 optimiser steps.
        With ``model="paper"`` 1500; during the first 1250 of them, at most 84 % of
        all, windows grow from an eighth of their length.
    batch_size : int, default=64
        Windows per optimiser step.
    lr : float, default=0.005
        Learning rate of AdamW, at the peak of its one cycle, after 30 % of all steps.
    weight_decay : float, default=0.0
        Decoupled, of weight matrices; biases and scales do not decay.
    guard : bool or "auto", default="auto"
        Whether what the network adds has to be proved: on two folds of time, the
        last 30 % of the rows (of 20 short series or more: on every fifth series), it
        and a structural model that has not seen them either forecast them; this gives
        the weight of each lead and channel. A network without prospects is given up
        after a third of the epochs; one that counts trains on with all rows. Fewer
        than 300 rows train none, nor fewer than 60 of ten series or more.
        False: its forecasts count whole. With ``model="paper"`` True is refused.
    early_stopping : bool, default=False
        Hold out the last tenth of every series (of many short ones: every tenth), stop
        when its loss has not improved by 1e-4 for 50 epochs, and keep the best weights.
        Epochs in which windows grow do not count.
    finetune_epochs : int, optional
        Epochs of a ``fit`` that follows ``pretrain``, and of an ``update``. None: a
        fifth of those from scratch; after ``pretrain`` at least a hundred steps, at 0.3
        times ``lr``.
    n_samples : int, default=100
        Draws of z0 for variance, quantiles, intervals and sample paths.
    freq : str, offset or Timedelta, optional
        Length of one step of a relative horizon on a DatetimeIndex. None: the index's
        own or inferred frequency; else a calendar frequency that all stamps lie on;
        else the median gap.
    clean : bool, default=True
        Leave out, with a warning, what a broken sensor wrote: absurd values, marks such
        as -999, runs of a stuck value; and rescale rows before a change of unit.
    device : str or torch.device, default="auto"
        "auto": the CPU, where numba's compiled engine runs fixed-step methods and up to
        two hidden layers. "cuda" trains in plain torch, as the rest does.
    random_state : int, RandomState or None, default=None
        Of every random number; no global generator is touched.
    verbose : {0, 1, 2}, default=0
        0: silent; 1: a progress bar, which needs tqdm; 2: a line per epoch.
    level : {"auto", "series"}, optional
        Deprecated, goes in 0.5: the earlier name of ``model``, "hybrid" or "paper".
    encoder : {"rnn", "ode-rnn", "ode-lstm"} or class, optional
        None: the one above. A class of torch modules is made of two sizes, those of its
        inputs and of h, and called with times, (batch, row), that increase, inputs,
        (batch, row, input), and observed, (batch, row), bool: rows that count. It
        returns h, (batch, hidden_size). With ``model="hybrid"`` times are ages: the
        latest row comes first. It trains in plain torch, and is pickled, not stored
        by ``save_weights``.
    n_networks : int, default=1
        With ``model="hybrid"``: networks, each of other initial weights and draws, of
        whose forecasts the mean counts: smaller errors, at as many times the cost. The
        first one decides whether the others are tried. They train in threads where
        ``joblib.parallel_config`` says how many.

    Attributes
    ----------
    network_ : sklode.hybrid.HybridODE or sklode.latent_ode.LatentODE
        The trained network; None where the structural model alone forecasts.
    networks_ : tuple
        With ``model="hybrid"``: all ``n_networks``, of which it is the first.
    history_ : DataFrame
        A row per epoch: ``loss``, ``log_likelihood`` and ``kl`` per observed value,
        ``kl_weight``, ``grad_norm`` before clipping, ``clipped_fraction``,
        ``validation_loss`` (or NaN), ``skipped_steps`` (not finite), ``restored_epoch``
        (after a divergence: from whose beginning it went on, else 0), ``lr``,
        ``seconds``, ``phase`` (1: what is held out proves it; later: others do, it
        trains on, and of panels at last a network of reversed time learns).
    n_epochs_, best_epoch_ : int
        Epochs trained, and the one whose weights are kept.
    window_length_, horizon_ : int
        As given, or chosen; kept from ``pretrain``. No ``horizon_`` of "hybrid".
    time_unit_ : Timedelta or float
        The training stamps' median positive gap, of "paper" at least a tenth of
        their mean gap; kept from ``pretrain``.
    location_, scale_ : ndarray of shape (channel,)
        What values are shifted and scaled by.
    network_share_ : float
        How much of the network's forecast counts, from 0 to 1: the mean over leads and
        channels, see ``guard``.
    network_weights_ : DataFrame
        With ``model="hybrid"``: the same by lead (time since the last observation, in
        ``time_unit_``) and channel, interpolated between leads; 0 beyond the last one.
    components_ : DataFrame
        With ``model="hybrid"``: the structural model's, see `StructuralForecaster`.
    interval_scale_ : DataFrame
        What the model's own spread, of "hybrid" the structural's, is multiplied by: a
        column per channel, a row per time since the last observation (in
        ``time_unit_``; 0: inside the history), interpolated between them.

    References
    ----------
    C. Coelho, M. F. P. Costa, L. L. Ferras, "Enhancing Continuous Time Series Modelling
    with a Latent ODE-LSTM Approach".

    Examples
    --------
    >>> from sktime.datasets import load_airline
    >>> from sklode import LatentODELSTMForecaster
    >>> y = load_airline()
    >>> forecaster = LatentODELSTMForecaster(max_epochs=2, random_state=0)
    >>> forecaster = forecaster.fit(y)
    >>> y_pred = forecaster.predict(fh=[1, 2, 3])
    """

    own_encoder = "ode-lstm"
