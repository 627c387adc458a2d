"""What happened during training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class History:
    """Losses per epoch and how training ended.

    Attributes
    ----------
    training_loss : list of float, default []
        Mean batch loss of every epoch on the rows to train on.
    validation_loss : list of float, default []
        The same on the rows set aside; empty if there were none.
    best_epoch : int, default 0
        Number, from 1, of the epoch whose weights were kept; 0 if training was interrupted before one ended.
    stopped_by : {"patience", "max_epochs", "interrupt"}, default "max_epochs"
        ``"patience"`` (no better epoch for that long), ``"max_epochs"`` or ``"interrupt"`` (Ctrl-C).
    seconds : float, default 0.0
        Time spent in the loop.

    Examples
    --------
    >>> from dcsurv import DCS
    >>> from dcsurv.datasets import simulate
    >>> cohort = simulate("independent", 200)
    >>> model = DCS(decoder_layers=0, max_epochs=3, random_state=0).fit(cohort.X, cohort.y)
    >>> len(model.history_.training_loss), model.history_.stopped_by
    (3, 'max_epochs')
    """

    training_loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    best_epoch: int = 0
    stopped_by: Literal["patience", "max_epochs", "interrupt"] = "max_epochs"
    seconds: float = 0.0

    @property
    def monitored(self) -> list[float]:
        """The losses that early stopping watched: validation, or training where there was no validation."""
        return self.validation_loss or self.training_loss

    def summary(self) -> dict[str, Any]:
        """Return a few plain numbers, without the time: the same training gives the same summary."""
        return {
            "epochs": len(self.training_loss),
            "best_epoch": self.best_epoch,
            "best_loss": self.monitored[self.best_epoch - 1] if self.best_epoch else None,
            "stopped_by": self.stopped_by,
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw both losses over the epochs and mark the epoch that was kept.

        Parameters
        ----------
        ax : Axes or None, default None
            Where to draw; None makes a figure.

        Returns
        -------
        Axes
            Where it was drawn.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        epochs = range(1, len(self.training_loss) + 1)
        ax.plot(epochs, self.training_loss, label="training")
        if self.validation_loss:
            ax.plot(epochs, self.validation_loss, label="validation")
        if self.best_epoch:
            ax.axvline(self.best_epoch, color="0.6", linestyle=":", label=f"kept: epoch {self.best_epoch}")
        ax.set(xlabel="epoch", ylabel="loss")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small")
        return ax
