"""Measure what the paper says of vanishing and exploding gradients.

The encoders RNN, ODE-RNN and ODE-LSTM walk backward over noisy sums of two sines at
random times, before and after training; the error that reaches an earlier visit is the
norm of dh_1/dh_k, exactly. Each claim of the paper (section "Method", appendix
"Vanishing and exploding gradients problem in RNN-based networks") is put beside what
was measured.

    python examples/paper/gradients.py [--output gradients.png] [--stamps 50 200 1000]
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from jacobians import EncoderInputs, gradient_flow, step_norms

from sklode import (
    LatentODEForecaster,
    LatentODELSTMForecaster,
    LatentODERNNForecaster,
    nn,
)

HIDDEN = 32
WINDOW, HORIZON = 100, 20
GAINS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""What the recurrent weights of fresh encoders are multiplied by."""

FORECASTERS = {
    "RNN": LatentODEForecaster,
    "ODE-RNN": LatentODERNNForecaster,
    "ODE-LSTM": LatentODELSTMForecaster,
}

STYLES: dict[str, dict[str, Any]] = {
    "RNN": {"color": "0.55", "ls": "-", "marker": "s"},
    "ODE-RNN": {"color": "0.0", "ls": "--", "marker": "o"},
    "ODE-LSTM": {"color": "0.0", "ls": "-", "marker": "^"},
    "ODE-LSTM, C held": {"color": "0.55", "ls": ":", "marker": "v"},
}


def two_sines(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return times, exponential gaps of 1 in the mean, and values of noise 0.1."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(np.maximum(rng.exponential(1.0, n), 1e-3))
    phases = rng.uniform(0, 2 * np.pi, 2)
    values = np.sin(2 * np.pi * times / 20 + phases[0])
    values += 0.5 * np.sin(2 * np.pi * times / 7 + phases[1])
    return times, values + 0.1 * rng.standard_normal(n)


def series(seed: int, n: int) -> pd.Series:
    """Return `two_sines` with the times as stamps."""
    times, values = two_sines(seed, n)
    stamps = pd.Timestamp("2021-01-01") + pd.to_timedelta(times, unit="h").round("s")
    return pd.Series(values, stamps, name="signal")


def inputs_of(seed: int, n: int) -> EncoderInputs:
    """Return what an encoder reads of a series: value and mask at every stamp."""
    times, values = two_sines(1000 + seed, n)
    values = (values - values.mean()) / values.std()
    read = np.stack([values, np.ones(n)], axis=1)
    # the median gap is the unit, as in the forecasters
    unit = np.median(np.diff(times))
    return EncoderInputs(*(torch.as_tensor(x)[None] for x in (times / unit, read)))


def fresh(kind: str, seed: int, gain: float = 1.0) -> Any:
    """Return an encoder as it is before training, its recurrent weights scaled."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if kind == "RNN":
            encoder: Any = nn.RNN(2, HIDDEN)
        else:
            make = {"ODE-RNN": nn.ODERNN, "ODE-LSTM": nn.ODELSTM}[kind]
            solver = nn.Solver()
            encoder = make(2, HIDDEN, nn.VectorField(HIDDEN), solver)
    with torch.no_grad():
        encoder.cell.weight_hh.mul_(gain)
    return encoder


def trained(kind: str, seed: int, epochs: int, clip_norm: float | None = 1.0) -> Any:
    """Return a forecaster after a short training on windows of 100 stamps."""
    forecaster = FORECASTERS[kind](
        hidden_size=HIDDEN,
        window_length=WINDOW,
        horizon=HORIZON,
        model="paper",
        batch_size=16,
        max_epochs=epochs,
        clip_norm=clip_norm,
        random_state=seed,
    )
    return forecaster.fit(series(seed, 600))


class Flow(NamedTuple):
    """Gradients of one encoder on one series."""

    log10: np.ndarray  # (visit,): of the larger of ||dh_1/dh_k|| and ||dh_1/dC_k||
    held: np.ndarray | None  # (visit,): with C as a constant, of an ODE-LSTM
    steps: pd.DataFrame  # of the first stamps
    weight: np.ndarray  # (gate * state, state): W of h

    def blocks(self, of: str, by: str) -> pd.DataFrame:
        """Return the steps' norms of one block."""
        return self.steps[(self.steps["of"] == of) & (self.steps["by"] == by)]


def measured(encoder: Any, inputs: EncoderInputs) -> Flow:
    """Return the gradients of an encoder on one series."""
    log10 = log10_of(encoder, inputs)
    held = None
    if isinstance(encoder, nn.ODELSTM):
        alone = gradient_flow(encoder, inputs, hold_cell=True)
        held = alone["log10_norm"].to_numpy()
    first = EncoderInputs(inputs.times[:, :200], inputs.inputs[:, :200])
    weight = encoder.cell.weight_hh.detach().numpy().astype(float)
    return Flow(log10, held, step_norms(encoder, first), weight)


def log10_of(encoder: Any, inputs: EncoderInputs) -> np.ndarray:
    """Return log10 of the larger of ||dh_1/dh_k|| and ||dh_1/dC_k||, (visit,)."""
    flow = gradient_flow(encoder, inputs)
    result: np.ndarray = flow.groupby("visits")["log10_norm"].max().to_numpy()
    return result


def factor_per_visit(log10: np.ndarray) -> tuple[float, float]:
    """Return the factor of a geometric law, and the share of variance it explains."""
    skipped = min(
        10, len(log10) // 4
    )  # where directions have not yet sorted themselves
    visits, log10 = np.arange(len(log10))[skipped:], log10[skipped:]
    slope, start = np.polyfit(visits, log10, 1)
    residual = log10 - (start + slope * visits)
    return float(10**slope), float(1 - residual.var() / log10.var())


class Evidence(NamedTuple):
    """All that was measured; flows by (when, kind), one per seed."""

    flows: dict[tuple[str, str], list[Flow]]
    gains: pd.DataFrame  # log10 norm across all visits of 200 stamps, by gain and kind
    clipping: pd.DataFrame
    off_diagonal: float
    loss_gradients: tuple[float, float]

    def factors(self, when: str, kind: str) -> np.ndarray:
        """Return (factor per visit, share explained) of each seed."""
        return np.array([factor_per_visit(f.log10) for f in self.flows[when, kind]])

    def factor(self, when: str, kind: str) -> float:
        """Return the factor per visit, the geometric mean over seeds."""
        return float(np.exp(np.log(self.factors(when, kind)[:, 0]).mean()))


WHEN = ("fresh", "trained")
PLAIN = ("RNN", "ODE-RNN")


def collect(stamps: int, seeds: int, epochs: int) -> Evidence:
    """Measure everything."""
    flows: dict[tuple[str, str], list[Flow]] = {}
    rows = {}
    off_diagonal = 0.0
    for kind in FORECASTERS:
        for seed in range(seeds):
            inputs = inputs_of(seed, stamps)
            forecaster = trained(kind, seed, epochs)
            learned = forecaster.network_.encoder
            for when, encoder in zip(WHEN, (fresh(kind, seed), learned), strict=True):
                flows.setdefault((when, kind), []).append(measured(encoder, inputs))
            if kind == "ODE-RNN" and seed == 0:
                off_diagonal = dropped_by_diag(learned, inputs)
            if seed == 0:
                rows[kind, "1"] = clipping_row(forecaster)
                bare = trained(kind, seed, epochs, clip_norm=None)
                rows[kind, "none"] = clipping_row(bare)
    inputs = inputs_of(0, 200)
    gains = pd.DataFrame(
        {
            kind: [log10_of(fresh(kind, 0, gain), inputs)[-1] for gain in GAINS]
            for kind in FORECASTERS
        },
        index=pd.Index(GAINS, name="gain"),
    )
    clipping = pd.DataFrame(rows).T.rename_axis(["encoder", "clip_norm"])
    clipped = loss_gradient(fresh("ODE-LSTM", 0, GAINS[-1]), inputs)
    return Evidence(flows, gains, clipping, off_diagonal, clipped)


def clipping_row(forecaster: Any) -> dict[str, float]:
    """Return what became of a training's gradients."""
    history = forecaster.history_
    return {
        "clipped": history["clipped_fraction"].mean(),
        "median norm": history["grad_norm"].median(),
        "max norm": history["grad_norm"].max(),
        "skipped": history["skipped_steps"].sum(),
        "last loss": history["loss"].iloc[-1],
    }


def dropped_by_diag(encoder: Any, inputs: EncoderInputs) -> float:
    """Return the size of the flow's Jacobian off its diagonal, beside that on it.

    Over one time unit, from states on the encoder's way; spectral norms.
    """
    encoder = copy.deepcopy(encoder).double()
    seen = torch.ones(inputs.times.shape, dtype=torch.bool)
    backward = (x.flip(1) for x in (*inputs[:2], seen))
    states = encoder.states(*backward)[0].flip(0)[:200:10]
    dt = -torch.ones(1, 1, dtype=torch.float64)
    ratios = []
    for h in states.detach():
        jacobian = torch.autograd.functional.jacobian(
            lambda h: encoder.solver.step(encoder.vector_field, h[None], dt)[0], h
        )
        diagonal = torch.diag(jacobian.diagonal())
        off, on = (
            torch.linalg.matrix_norm(m, 2) for m in (jacobian - diagonal, diagonal)
        )
        ratios.append(float(off / on))
    return float(np.mean(ratios))


def loss_gradient(encoder: Any, inputs: EncoderInputs) -> tuple[float, float]:
    """Return the norm of the gradient of ||h_1||^2 before and after clipping at 1."""
    encoder = copy.deepcopy(encoder).double()
    seen = torch.ones(inputs.times.shape, dtype=torch.bool)
    encoder(*inputs[:2], seen).square().sum().backward()
    before = nn.clip_gradient_norm(encoder.parameters(), 1.0)
    return before, nn.clip_gradient_norm(encoder.parameters(), None)


class Finding(NamedTuple):
    """A claim of the paper, what was measured, and whether the claim holds."""

    claim: str
    measured: str
    verdict: str


def power(log10: float) -> str:
    """Return a norm as a power of ten."""
    return f"1e{log10:+.0f}"


def vanishing(evidence: Evidence) -> Iterator[Finding]:
    """Judge what the paper says of gradients that vanish."""
    laws = {
        (when, kind): evidence.factors(when, kind) for when in WHEN for kind in PLAIN
    }
    geometric = all(
        (f[:, 0] < 1).all() and (f[:, 1] > 0.95).all() for f in laws.values()
    )
    least = min(f[:, 1].min() for f in laws.values())
    shown = ", ".join(
        f"{kind} {when} {evidence.factor(when, kind):.2f}" for when, kind in laws
    )
    yield Finding(
        "Gradients of RNN and ODE-RNN vanish exponentially (eqs. eta1, eta3)",
        f"factor per visit: {shown}; a geometric law explains {least:.1%} or more",
        "supported" if geometric else "not in every case",
    )
    shown, verdicts = [], []
    for when in WHEN:
        rnn, lstm = (evidence.factors(when, k)[:, 0] for k in ("ODE-RNN", "ODE-LSTM"))
        ratios = np.log(lstm) / np.log(rnn)
        each = ", ".join(f"{a:.2f} and {b:.2f}" for a, b in zip(rnn, lstm, strict=True))
        shown.append(f"{when} {each} (decades lost, ratio {ratios.mean():.2f})")
        verdict = "slower, but exponential" if ratios.max() < 0.9 else "not slower"
        verdicts.append(f"{when}: {verdict if ratios.max() >= 0.5 else 'supported'}")
    yield Finding(
        "The ODE-LSTM mitigates vanishing (section proof:Latent ODE-LSTM vanishing)",
        "factor per visit, ODE-RNN and ODE-LSTM, each seed: " + "; ".join(shown),
        ", ".join(verdicts),
    )
    gates = {
        when: np.mean(
            [
                f.blocks("c", "c")["norm"].mean()
                for f in evidence.flows[when, "ODE-LSTM"]
            ]
        )
        for when in WHEN
    }
    yield Finding(
        "C ensures a constant error flow",
        "largest forget gate, mean over visits (1 would be constant): "
        + ", ".join(
            f"{w} {g:.2f}, over 100 visits {power(100 * np.log10(g))}"
            for w, g in gates.items()
        ),
        "supported" if min(gates.values()) > 0.99 else "refuted",
    )
    flows = [f for when in WHEN for f in evidence.flows[when, "ODE-LSTM"]]
    at = min(199, len(flows[0].log10) - 1)
    whole = [f.log10[at] for f in flows]
    held = [f.held[at] for f in flows if f.held is not None]
    yield Finding(
        "dh_i/dh_k is the product of dh_j/dh'_j dh'_j/dh_(j-1) (eq. 11a)",
        f"across {at} visits {power(np.mean(held))} by that product, "
        f"{power(np.mean(whole))} in truth: the error travels by C",
        "refuted" if np.mean(whole) - np.mean(held) > 1 else "supported",
    )
    steps = pd.concat([f.blocks("h", "h") for f in flows])
    met = (steps["flow"] < 0.2).mean()
    within = (steps["norm"] <= 5 * steps["flow"]).mean()
    yield Finding(
        "It vanishes if each step is below 5 lambda' < 1 (eq. 12)",
        f"norm <= 5 lambda' in {within:.0%} of the steps, lambda' < 1/5 in {met:.0%} "
        f"(least {steps['flow'].min():.2f}); it vanishes all the same",
        "true, but explains nothing" if within == 1 and met < 0.01 else "supported",
    )


def appendix(evidence: Evidence) -> Iterator[Finding]:
    """Judge the bounds of the appendix."""
    above_eigenvalue, above_singular = [], []
    for when in WHEN:
        for kind in PLAIN:
            for f in evidence.flows[when, kind]:
                steps = f.blocks("h", "h")
                radius = np.abs(np.linalg.eigvals(f.weight)).max()
                largest = np.linalg.norm(f.weight, 2)
                above_eigenvalue += (steps["norm"] > radius * steps["flow"]).tolist()
                bound = largest * steps["flow"] * (1 + 1e-9)
                above_singular += (steps["norm"] > bound).tolist()
    yield Finding(
        "A step's norm is at most lambda gamma lambda', lambda the largest eigenvalue",
        f"exceeded in {np.mean(above_eigenvalue):.0%} of the steps; with the largest "
        f"singular value in {np.mean(above_singular):.0%}",
        "refuted; true of singular values"
        if any(above_eigenvalue) and not any(above_singular)
        else "supported",
    )
    inputs = inputs_of(0, 200)
    encoder = fresh("RNN", 0, 1.5)
    least = step_norms(encoder, inputs)["norm"].min()
    reached = log10_of(encoder, inputs)[-1]
    promised = 199 * np.log10(least)
    yield Finding(
        "If every step's norm is at least eta > 1, the product is at least eta^n",
        f"RNN, recurrent weights times 1.5: every step above {least:.2f}, so "
        f"{power(promised)} across 199 visits; it is {power(reached)}",
        "refuted" if least > 1 and reached < promised else "no counterexample",
    )
    yield Finding(
        "dh'/dh may be taken for a diagonal matrix",
        f"trained ODE-RNN, one time unit: norm off the diagonal "
        f"{evidence.off_diagonal:.2f} times that on it",
        "refuted" if evidence.off_diagonal > 0.1 else "supported",
    )


def exploding(evidence: Evidence) -> Iterator[Finding]:
    """Judge what the paper says of gradients that explode, and of clipping."""
    gains = evidence.gains
    first = {kind: gains.index[gains[kind] > 1].min() for kind in gains}
    yield Finding(
        "All three can explode",
        "across 199 visits above 10 from recurrent weights times "
        + ", ".join(f"{gain:g} ({kind})" for kind, gain in first.items()),
        "supported" if not np.isnan(list(first.values())).any() else "not seen",
    )
    largest = gains.iloc[-1]
    yield Finding(
        "LSTMs do not mitigate explosion",
        f"weights times {gains.index[-1]:g}: "
        + ", ".join(f"{kind} {power(x)}" for kind, x in largest.items()),
        "refuted: later and slower"
        if largest["ODE-LSTM"] < largest["ODE-RNN"] / 2
        else "supported",
    )
    before, after = evidence.loss_gradients
    yield Finding(
        "Clipping limits the gradient to the threshold",
        f"exploding ODE-LSTM, 200 stamps: {before:.1e} before, {after:.6f} after",
        "supported" if before > 1 and abs(after - 1) < 1e-6 else "refuted",
    )
    bare = evidence.clipping.xs("none", level="clip_norm")
    yield Finding(
        "Without clipping, training meets exploding gradients",
        f"windows of {WINDOW} stamps: {bare['skipped'].sum():.0f} steps not finite, "
        f"largest mean norm of an epoch {bare['max norm'].max():.0f}, "
        f"{(bare['max norm'] / bare['median norm']).max():.1f} times the median",
        "seen"
        if bare["skipped"].sum() or (bare["max norm"] > 10 * bare["median norm"]).any()
        else "not seen here",
    )


def table_of(evidence: Evidence, stamps: Sequence[int]) -> pd.DataFrame:
    """Return log10 norms across whole sequences, the mean over seeds."""
    rows = {}
    for (when, kind), flows in evidence.flows.items():
        lines = {kind: np.mean([f.log10 for f in flows], axis=0)}
        if flows[0].held is not None:
            lines[f"{kind}, C held"] = np.mean([f.held for f in flows], axis=0)
        for name, line in lines.items():
            row = {f"{n} stamps": line[n - 1] for n in stamps}
            rows[when, name] = {**row, "factor per visit": factor_per_visit(line)[0]}
    return pd.DataFrame(rows).T


def draw(evidence: Evidence, path: str) -> None:
    """Save the picture: fresh, trained, and by gain."""
    figure, panels = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained")
    for panel, when in zip(panels, WHEN, strict=False):
        for kind in FORECASTERS:
            flows = evidence.flows[when, kind]
            lines = {kind: np.mean([f.log10 for f in flows], axis=0)}
            if flows[0].held is not None:
                lines[f"{kind}, C held"] = np.mean([f.held for f in flows], axis=0)
            for name, line in lines.items():
                every = max(len(line) // 8, 1)
                panel.plot(line, label=name, markevery=every, ms=5, **STYLES[name])
        panel.set(
            title=f"{when} encoders",
            xlabel="visits between",
            ylabel="$\\log_{10} \\| \\partial h_1 / \\partial (h_k, C_k) \\|$",
            ylim=(-100, 5),
        )
    panels[0].legend(frameon=False, loc="upper right")
    for kind in FORECASTERS:
        panels[2].plot(evidence.gains[kind], ms=5, label=kind, **STYLES[kind])
    panels[2].axhline(0, color="0.8", lw=0.8, zorder=0)
    panels[2].set(
        title="fresh, 199 visits, weights scaled",
        xlabel="factor of the recurrent weights",
        ylabel="$\\log_{10}$ of the norm",
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> pd.DataFrame:
    """Measure, print, save the picture; return the findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="gradients.png", help="the picture's path")
    parser.add_argument("--stamps", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10, help="of each training")
    arguments = parser.parse_args(argv)

    begun = time.perf_counter()
    evidence = collect(max(*arguments.stamps, 2), arguments.seeds, arguments.epochs)
    findings = pd.DataFrame(
        [f for part in (vanishing, appendix, exploding) for f in part(evidence)]
    )
    print("log10 of the norm from the first visit to the last, mean over seeds")
    print(table_of(evidence, arguments.stamps).round(3).to_string())
    print("\nlog10 of the norm across 199 visits, recurrent weights scaled")
    print(evidence.gains.round(1).to_string())
    print("\nTrainings with and without clipping")
    print(evidence.clipping.round(2).to_string())
    for claim, found, verdict in findings.itertuples(index=False):
        print(f"\n{claim}\n    {found}\n    {verdict.upper()}")
    draw(evidence, arguments.output)
    seconds = time.perf_counter() - begun
    print(f"\n{seconds:.0f} s. The picture is in {arguments.output}")
    return findings


if __name__ == "__main__":
    main()
