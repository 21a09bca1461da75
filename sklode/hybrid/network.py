r"""A Latent ODE whose z0 stands at the last seen row, and looks ahead from there.

The encoder reads a window forward in time, up to the origin. Beside its state stand
direct readings of each channel. Each has a latent state of its own there, one layer
lets them meet, and a neural ODE carries them on.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sklode.nn.autoencoder import Autoencoder, cubature_points, perceptron
from sklode.nn.decoders import ControlPath, Decoder
from sklode.nn.encoders import Encoder, build_encoder
from sklode.nn.objective import Bound
from sklode.nn.settings import NetworkSettings
from sklode.nn.solvers import Solver
from sklode.nn.vector_fields import VectorField

FEW = 8
"""Up to so many channels the states flow together; of more each flows linearly."""

# over how many time units decayed means forget
_FADES = 0.5, 2.0, 8.0
# past values are read near so many lags, so far apart
_N_LAGS, _SPACING = 16, 1.5
# inputs beyond so many deviations count as logarithms, targets as the largest
_SOFT, _LARGEST = 3.0, 20.0
_EMBEDDING, _MEETING = 8, 128
_DROPPED = 0.2  # of the neurons in which many channels meet, at a step of training
# an answer is conditioned on exp(-rate * time / reach) of the time since the last
# value and since the origin: fast rates tell the first rows apart, slow ones the whole
# reach
_RATES_OF_AGE, _RATES_OF_LEAD = (5.0, 1.25), (15.0, 5.0)

_FULL_KL = 300
"""With more rows than this the KL term counts for less, by the square."""

_HUBER = 2.0  # from so many scales on an error counts in proportion
# The integral of exp(-rho): the normal part within k = _HUBER scales, and two tails
# exp(k^2 / 2 - k |z|), each of area exp(-k^2 / 2) / k.
_LOG_HUBER_MASS = math.log(
    math.sqrt(2 * math.pi) * math.erf(_HUBER / math.sqrt(2))
    + 2 / _HUBER * math.exp(-(_HUBER**2) / 2)
)


class HybridBatch(NamedTuple):
    """Windows that end at an origin, and values that are queried after it.

    Rows come latest first: times are ages, which increase.
    """

    times: Tensor  # (window, row): time from each row to the origin
    values: Tensor  # (window, row, channel)
    mask: Tensor  # (window, row, channel), bool
    controls: Tensor | None  # (window, row, control)
    path: ControlPath | None  # controls from the origin on
    window: Tensor  # (answer,), int64: whose answer it is
    channel: Tensor  # (answer,), int64
    lead: Tensor  # (answer,): time since the origin
    target: Tensor  # (answer,)
    dropout: int | None = None  # a seed: by it some neurons are left out


class Readings(NamedTuple):
    """What is read of each channel directly at the origin, (window, channel) each.

    0 where a channel has no value.
    """

    last: Tensor
    log_age: Tensor  # log(1 + age) of the last value
    mean: Tensor
    log_count: Tensor
    faded_soon: Tensor  # means that forget over the times of `_FADES`
    faded: Tensor
    faded_late: Tensor
    spread: Tensor
    least: Tensor
    largest: Tensor
    first: Tensor
    some: Tensor  # 1 where there is any value

    @classmethod
    def of(cls, ages: Tensor, values: Tensor, known: Tensor) -> Readings:
        """Read windows, (window, row, channel); ``known`` is 1 where a value is."""
        known = known.transpose(1, 2).contiguous()
        values = values.transpose(1, 2)
        ages = ages.unsqueeze(1)
        count = known.sum(-1)
        some, divisor = (count > 0).to(values.dtype), count.clamp(min=1)
        # unknown values are 0, and add nothing
        mean = values.sum(-1) / divisor
        away = (values - mean.unsqueeze(-1)) * known
        variance = (away**2).sum(-1) / divisor
        # argmax finds the first 1: rows come latest first, so it is the last value
        last = known.argmax(-1, keepdim=True)
        from_end = known.flip(-1).argmax(-1, keepdim=True)
        first = known.shape[-1] - 1 - from_end
        age = ages.expand_as(values).gather(-1, last)
        # weights fall with the time before the last value, which has weight one: a
        # channel that was last seen long ago forgets no faster
        faded = []
        for fade in _FADES:
            weight = torch.exp(-(ages - age).clamp(min=0) / fade) * known
            total = weight.sum(-1).clamp(min=1e-9)
            faded.append((weight * values).sum(-1) / total)
        far = torch.where(known > 0, 0.0, torch.inf)
        return cls(
            last=values.gather(-1, last).squeeze(-1),
            log_age=torch.log1p(age.squeeze(-1)) * some,
            mean=mean,
            log_count=torch.log1p(count),
            faded_soon=faded[0],
            faded=faded[1],
            faded_late=faded[2],
            # the root's slope is infinite at 0, which constants have
            spread=torch.sqrt(variance + 1e-6) * some,
            least=torch.where(count > 0, (values + far).amin(-1), 0.0),
            largest=torch.where(count > 0, (values - far).amax(-1), 0.0),
            first=values.gather(-1, first).squeeze(-1) * some,
            some=some,
        )

    @property
    def table(self) -> Tensor:
        """All of them, (window, channel, reading)."""
        return torch.stack(self, -1)

    @property
    def averages(self) -> Tensor:
        """Last value and means, which lines read, (window, channel, average)."""
        several = [self.last, self.mean]
        several += [self.faded_soon, self.faded, self.faded_late]
        return torch.stack(several, -1)


_N_AVERAGES = 5  # of `Readings.averages`


class _Slots(NamedTuple):
    """Answers by window."""

    leads: Tensor  # (window, slot)
    place: Tensor  # (answer,): its number
    slot: Tensor  # (answer,): its number among its window's


class Origin(NamedTuple):
    """What is known at the last row of each window."""

    mean: Tensor  # of q(z0), (window, latent)
    log_variance: Tensor  # likewise
    readings: Tensor  # of softened values, see `Readings.table`
    averages: Tensor  # of values, see `Readings.averages`


class LinearFlow(nn.Module):
    r"""Solve dz/dt = A z exactly, with a matrix A of each channel's own.

    .. math:: z(t) = \exp(A t) z_0

    Pairs of components turn and fade: A is block diagonal, of [[-a, -w], [w, -a]] with
    a not below 0. Half of them stand still at first, as what many columns tell does;
    the others turn once in periods up to ``longest``.
    """

    def __init__(self, n_channels: int, size: int, longest: float) -> None:
        super().__init__()
        n = size // 2
        n_still = n // 2
        periods = torch.logspace(
            math.log10(4.0), math.log10(longest), steps=n - n_still
        )
        speeds = torch.cat([torch.zeros(n_still), 2 * math.pi / periods])
        self.speeds = nn.Parameter(speeds.repeat(n_channels, 1))
        # softplus(-6) = 0.0025: at first next to nothing fades
        self.raw_rates = nn.Parameter(torch.full((n_channels, n), -6.0))

    def forward(self, state: Tensor, channel: Tensor, lead: Tensor) -> Tensor:
        """Return states of channels after so long, (answer, state)."""
        lead = lead.unsqueeze(1)
        angle = self.speeds[channel] * lead
        rate = functional.softplus(self.raw_rates[channel])
        left = torch.exp(-rate * lead)
        # component k and component n + k are a pair; an odd one out stays as it is
        n = angle.shape[1]
        one, other = state[:, :n], state[:, n : 2 * n]
        rest = state[:, 2 * n :]
        # exp(A t) of a block is exp(-a t) times the rotation by w t
        cos, sin = left * torch.cos(angle), left * torch.sin(angle)
        turned = one * cos - other * sin
        other_turned = one * sin + other * cos
        return torch.cat([turned, other_turned, rest], 1)


class HybridODE(Autoencoder):
    r"""Variational autoencoder that encodes what was seen and decodes what follows.

    .. math::
        h_N = \mathrm{Encoder}(\{x_i, m_i, u_i, t_i\}), \quad
        q(z_0) = N(g(h_N, r_N)), \quad
        z(t) = \mathrm{ODESolve}(f, z_0, t_N \to t), \quad
        p(x_c \mid z(t)) = \mathrm{Huber}(\hat x_c(z(t), r_N), s_c)

    with :math:`r_N` direct readings at the origin :math:`t_N`. The rest is the
    paper's Algorithms 1 and 2; time runs the other way.

    Parameters
    ----------
    encoder : nn.Module
        `ODELSTM`, `ODERNN`, `RNN` or `CustomEncoder`, over [x, mask, u].
    decoder : Decoder or None
        Of the states of all channels, (latent_size * channel,); None: each flows by
        itself, see `LinearFlow`.
    n_channels, n_controls, latent_size, width : int
        Numbers of x and u; size of each channel's state; neurons in hidden layers.
    reach : float
        The longest lead that it learns, in time units.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder | None,
        n_channels: int,
        n_controls: int,
        latent_size: int,
        width: int,
        reach: float,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.state_size, self.n_channels = latent_size, n_channels
        self.reach = reach
        # random weights are drawn as modules are made: their order decides all
        size, together = latent_size, n_channels * latent_size
        self.names = nn.Parameter(0.3 * torch.randn(n_channels, _EMBEDDING))
        n_lags = 0 if decoder is None else _N_LAGS
        # of each channel: readings, name, h, values near lags and their density
        n_readings = len(Readings._fields)
        n_read = n_readings + 2 * n_lags + _EMBEDDING + encoder.hidden_size
        layers = functools.partial(perceptron, activation=nn.GELU)
        self.token = layers(n_read, width, size)
        if decoder is not None:
            self.direct = nn.Linear(n_channels * n_lags, together)
            nn.init.normal_(self.direct.weight, std=0.1)
        else:
            self.flow = LinearFlow(n_channels, size, max(reach, 8.0))
        self.meeting = nn.Sequential(
            nn.LayerNorm(together),
            layers(together, _MEETING, together),
        )
        self.own = nn.Sequential(
            nn.LayerNorm(size),
            layers(size, width, size),
        )
        # exp(-4 / 2) = 0.14: draws of z0 at first scatter little, alike everywhere
        self.log_variance = nn.Linear(size, size)
        nn.init.zeros_(self.log_variance.weight)
        nn.init.constant_(self.log_variance.bias, -4.0)
        # beside the state: name, times, whether there is any value, readings, controls
        n_times = len(_RATES_OF_AGE) + len(_RATES_OF_LEAD) + 1
        n_inputs = size + _EMBEDDING + n_times + 1 + n_readings + n_controls
        self.out = layers(n_inputs, width, outputs=1)
        with torch.no_grad():
            self.out[2].weight.mul_(0.1)  # type: ignore[operator]
        if decoder is not None:
            self.line = nn.Linear(together, n_channels)
        # each average counts as it is, and as it fades at each rate
        n_faded = (1 + len(_RATES_OF_AGE)) * _N_AVERAGES
        self.own_lines = nn.Parameter(torch.zeros(n_channels, n_faded))
        self.raw_noise = nn.Parameter(torch.full((n_channels,), -0.5))
        self.kl_scale = 1.0  # of the KL term in the objective
        # how much each channel's values count in the likelihood
        self.weights: Tensor
        self.register_buffer("weights", torch.ones(n_channels))

    def count_rows(self, n_rows: int) -> None:
        """Let the KL term count for less, of many rows to learn from."""
        self.kl_scale = min(1.0, _FULL_KL / max(n_rows, 1)) ** 2

    @property
    def latent_size(self) -> int:
        """Size of the states of all channels together."""
        return self.state_size * self.n_channels

    @property
    def noise_scale(self) -> Tensor:
        """The scale s, (channel,), in normalised units."""
        return functional.softplus(self.raw_noise) + 1e-3

    def forward(self, batch: HybridBatch, noise: Tensor | None = None) -> Bound:
        """Return the parts of the evidence lower bound of windows.

        z0 is reparametrised by ``noise``, (window, latent); without it, its mean.
        """
        origin = self._origin(batch)
        z0, log_variance = origin.mean, origin.log_variance
        # KL(N(m, v) || N(0, 1)) = (m^2 + v - 1 - log v) / 2, summed over components
        kl = 0.5 * (z0**2 + log_variance.exp() - 1 - log_variance).sum(-1)
        if noise is not None:
            z0 = z0 + noise * torch.exp(0.5 * log_variance)
        target = batch.target.clamp(-_LARGEST, _LARGEST)
        errors = target - self._answers(batch, z0, origin)
        each = huber_log_likelihood(errors, self.noise_scale[batch.channel])
        each = each * self.weights[batch.channel]
        # answers are of no fixed number a window: they are added up at its place
        n = len(batch.times)
        counts = torch.bincount(batch.window, minlength=n)
        total = each.new_zeros(n).index_add(0, batch.window, each)
        return Bound(total, self.kl_scale * kl, counts)

    def predict(self, batch: HybridBatch) -> Tensor:
        """Return x^ at the mean of q(z0), (answer,)."""
        origin = self._origin(batch)
        return self._answers(batch, origin.mean, origin)

    def states(self, batch: HybridBatch) -> tuple[Tensor, Tensor]:
        """Return z at each answer's lead from the mean of q(z0), and its deviation.

        (answer, latent) each, see `cubature_points`.
        """
        origin = self._origin(batch)
        deviation = torch.exp(0.5 * origin.log_variance)
        slots = _slots(batch)
        mean, *others = (
            self._flowed(batch, z0, slots)
            for z0 in cubature_points(origin.mean, deviation)
        )
        return mean, (torch.stack(others) - mean).square().mean(0).sqrt()

    def _flowed(self, batch: HybridBatch, z0: Tensor, slots: _Slots) -> Tensor:
        """Return z of all channels at each answer's lead, (answer, latent)."""
        if self.decoder is None:
            n, shape = len(batch.window), (self.n_channels, self.state_size)
            state = z0.unflatten(1, shape)[batch.window].flatten(0, 1)
            every = torch.arange(self.n_channels, device=z0.device).repeat(n)
            lead = batch.lead.repeat_interleave(self.n_channels)
            return self.flow(state, every, lead).view(n, -1)
        t0 = z0.new_zeros(len(z0))
        z: Tensor = self.decoder(z0, t0=t0, times=slots.leads, controls=batch.path)
        return z[batch.window, slots.slot]

    def _origin(self, batch: HybridBatch) -> Origin:
        """Read windows; encode them to q(z0) at their origins."""
        known = batch.mask.to(batch.values.dtype)
        raw = torch.where(batch.mask, batch.values, 0.0)
        values = _softened(raw)
        read = Readings.of(batch.times, values, known).table
        inputs = [values, known]
        if batch.controls is not None:
            inputs.append(batch.controls)
        # a flow backward along ages is one forward in time
        h = self.encoder(
            batch.times,
            inputs=torch.cat(inputs, -1),
            observed=batch.mask.any(-1),
        )
        # what all channels share, h, and what all windows do, names
        of_all = h.unsqueeze(1).expand(-1, self.n_channels, -1)
        names = self.names.expand(len(read), -1, -1)
        parts = [read, names, of_all]
        if self.decoder is None:
            z = self.token(torch.cat(parts, -1))
        else:
            near, density = _near(batch.times, values, known)
            z = self.token(torch.cat([*parts, near, density], -1))
            z = z + self.direct(near.flatten(1)).view(z.shape)
        z = z + self._met(z.flatten(1), batch.dropout).view(z.shape)
        z = z + self.own(z)
        limited = raw.clamp(-_LARGEST, _LARGEST)
        return Origin(
            mean=z.flatten(1),
            log_variance=self.log_variance(z).flatten(1),
            readings=read,
            averages=Readings.of(batch.times, limited, known).averages,
        )

    def _met(self, states: Tensor, dropout: int | None) -> Tensor:
        """Return what states of all channels, (window, latent), tell each other.

        Dropout (Srivastava et al. 2014): of neurons that are left out others make up
        the sum, on average.
        """
        norm, layers = self.meeting
        *inner, outer = layers.children()
        hidden = norm(states)
        for layer in inner:
            hidden = layer(hidden)
        if dropout is not None:
            draws = torch.Generator().manual_seed(dropout)
            kept = torch.empty(hidden.shape).bernoulli_(1 - _DROPPED, generator=draws)
            hidden = hidden * kept.to(hidden) / (1 - _DROPPED)
        told: Tensor = outer(hidden)
        return told

    def _answers(self, batch: HybridBatch, z0: Tensor, origin: Origin) -> Tensor:
        """Return x^ of each answer, of z0 and readings of the origin."""
        window, channel, lead = batch.window, batch.channel, batch.lead
        read = origin.readings[window, channel]
        own = Readings(*read.unbind(1))
        # the last value's age now: log(1 + age) was its age at the origin
        age = (lead + torch.expm1(own.log_age)) / self.reach
        passed = lead / self.reach
        faded = [torch.exp(-rate * age) for rate in _RATES_OF_AGE]
        fading = torch.stack(faded, 1)
        ahead = [torch.exp(-rate * passed) for rate in _RATES_OF_LEAD]
        slots = _slots(batch)
        # z0 is that of all channels, one after another
        of_channels = self.n_channels, self.state_size
        if self.decoder is None:
            state = z0.unflatten(1, of_channels)[window, channel]
            state = self.flow(state, channel, lead)
        else:
            z = self._flowed(batch, z0, slots)
            state = z.unflatten(1, of_channels)[slots.place, channel]
        name, since = self.names[channel], torch.stack([*ahead, passed], 1)
        parts = [state, name, since, fading, own.some.unsqueeze(1), read]
        if batch.path is not None:
            parts.append(batch.path.at(slots.leads)[window, slots.slot])
        x: Tensor = self.out(torch.cat(parts, 1)).squeeze(1)
        # lines: a sum over averages times 1, and times how far each rate has faded
        whole_and_faded = functional.pad(fading, (1, 0), value=1.0)
        averages = origin.averages[window, channel].unsqueeze(2)
        lines = (averages * whole_and_faded.unsqueeze(1)).flatten(1)
        x = x + (self.own_lines[channel] * lines).sum(1)
        if self.decoder is not None:
            x = x + self.line(z).gather(1, channel.unsqueeze(1)).squeeze(1)
        return x


def _slots(batch: HybridBatch) -> _Slots:
    """Return where the answers of a batch stand."""
    window, lead = batch.window, batch.lead
    # Each answer's place among its window's: answers are sorted by window, so the
    # first place of a window is where the search for its number ends.
    place = torch.arange(len(window), device=window.device)
    slot = place - torch.searchsorted(window, window)
    n_slots = 1 + int(slot.amax()) if len(slot) else 1
    leads = lead.new_zeros(len(batch.times), n_slots)
    leads[window, slot] = lead
    return _Slots(leads, place, slot)


def huber_log_likelihood(errors: Tensor, scale: Tensor) -> Tensor:
    r"""Logarithm of Huber's density (1964) of errors: normal, with exponential tails.

    .. math::
        \log p(e) = -\rho(e / s) - \log s - \log c, \quad
        \rho(z) = z^2 / 2 \text{ up to } |z| = k, \; k |z| - k^2 / 2 \text{ beyond}

    with k = 2; shape and broadcasting as of ``errors`` / ``scale``.
    """
    z = errors / scale
    rho = functional.huber_loss(z, torch.zeros_like(z), reduction="none", delta=_HUBER)
    return -rho - scale.log() - _LOG_HUBER_MASS


def _softened(values: Tensor) -> Tensor:
    # log(1 + x) has slope 1 at 0: no kink where the logarithm begins
    beyond = (values.abs() - _SOFT).clamp(min=0)
    return values.clamp(-_SOFT, _SOFT) + values.sign() * torch.log1p(beyond)


def _near(ages: Tensor, values: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return values near even lags, and density, (window, channel, lag)."""
    number = torch.arange(_N_LAGS, device=ages.device)
    lags = _SPACING * number.unsqueeze(-1)
    away = 2 * (ages.unsqueeze(1) - lags).abs() / _SPACING
    # exp(-60) is far above 1e-30: a lag with no value near takes the mean of all
    weight = torch.exp(-away.clamp(max=60))
    total = weight @ known
    near = (weight @ values) / (total + 1e-30)
    # in [0, 1): how much stands near, half of it from a weight of 0.3 on
    density = total / (total + 0.3)
    return near.transpose(1, 2), density.transpose(1, 2)


def build_network(
    settings: NetworkSettings, n_channels: int, n_controls: int, reach: float
) -> HybridODE:
    """Return an untrained network, as a forecaster's ``settings`` say."""
    solver = Solver(settings.method, settings.step_size)
    # values, their mask, and controls
    n_inputs = 2 * n_channels + n_controls
    encoder = build_encoder(settings, n_inputs, solver)
    decoder = None
    if n_channels <= FEW:
        # neurons of each channel, and of what they share
        field = VectorField(
            n_channels * settings.latent_size,
            width=settings.field_width * (n_channels + 1),
            depth=settings.field_depth,
            control_size=n_controls,
        )
        decoder = Decoder(field, solver)
    return HybridODE(
        encoder=encoder,
        decoder=decoder,
        n_channels=n_channels,
        n_controls=n_controls,
        latent_size=settings.latent_size,
        width=settings.emission_width,
        reach=reach,
    )
