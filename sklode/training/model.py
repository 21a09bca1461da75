"""What training leaves: a network, and all that applies it to new series.

Tested in tests/test_pretrain_update.py.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields

import pandas as pd

from sklode.data.arrays import Array, Columns
from sklode.data.known import known_settings
from sklode.data.scaling import Units
from sklode.data.ticks import TIMELIKE, length_of_time
from sklode.nn.autoencoder import Autoencoder
from sklode.nn.settings import NetworkSettings
from sklode.training.parameters import TrainingSettings, model_of
from sklode.training.trainer import HISTORY_COLUMNS


def architecture_of(settings: TrainingSettings) -> dict[str, object]:
    """Return the settings that a training which goes on must share."""
    names = *(one.name for one in fields(NetworkSettings)), "window_length", "horizon"
    given = {name: getattr(settings, name) for name in names}
    given["n_networks"] = settings.n_networks
    given["encoder"] = settings.encoder or settings.own_encoder
    return given | {"model": model_of(settings)} | known_settings(settings)


@dataclass(frozen=True, repr=False, kw_only=True)
class TrainedModel:
    """A network with all that applies it to new series.

    Names of fields are those of weights files.
    """

    network: Autoencoder | None
    units: Units
    clock: str  # of the index, see `sklode.data.ticks.clock_of`
    window_length: int  # rows that the encoder sees
    architecture: dict[str, object]  # the settings that the network was built with
    columns: Columns = ((), (), {})
    # the training's history, a record per epoch
    rows: list[dict[str, float]] = field(default_factory=list)
    whole_epochs: int = 0  # from scratch; later trainings take a share
    best_epoch: int = 0  # whose weights it has; 0: those it started from

    @property
    def networks(self) -> tuple[Autoencoder, ...]:
        """All networks of which the mean is taken."""
        return () if self.network is None else (self.network,)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of columns of y and of X."""
        return len(self.units.location), len(self.units.control_location)

    def length(self, reach: float, like: pd.Index) -> str:
        """Return so many units of time in words, of stamps like these."""
        return length_of_time(reach * self.units.time, like)

    def attributes(self, channels: list[Hashable]) -> dict[str, object]:
        """Return the fitted attributes of a forecaster that training leaves."""
        # columns also where there are no epochs
        history = pd.DataFrame(self.rows, columns=[*HISTORY_COLUMNS, "phase"])
        # ticks are nanoseconds where they are time
        unit = self.units.time
        is_time = self.clock == TIMELIKE
        return {
            "network_": self.network,
            "history_": history.set_index("epoch"),
            "n_epochs_": len(self.rows),
            "best_epoch_": self.best_epoch,
            "window_length_": self.window_length,
            "location_": self.units.location,
            "scale_": self.units.scale,
            "time_unit_": pd.Timedelta(round(unit)) if is_time else unit,
        }


def by_lead(leads: Array, table: Array, channels: list[Hashable]) -> pd.DataFrame:
    """Return a table, (lead, channel), as users read it."""
    name = "time since the last observation"
    return pd.DataFrame(table, pd.Index(leads, name=name), channels)
