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
    training_loss, validation_loss
        Mean batch loss of every epoch. The second list is empty without validation rows.
    best_epoch
        Number, from 1, of the epoch whose weights were kept; 0 if training was interrupted before one ended.
    stopped_by
        ``"patience"`` (no better epoch for that long), ``"max_epochs"`` or ``"interrupt"`` (Ctrl-C).
    seconds
        Time spent in the loop.
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
        """Draw both losses over the epochs and mark the epoch that was kept."""
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
