"""Grid, network and head of a model are three things: a probability mass or a head per cause is a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

import dcsurv
from dcsurv.losses import discrete_likelihood, survival_from_logits
from dcsurv.models import EncoderDecoderEstimator
from dcsurv.models.heads import HazardHead, Head


class MassHead:
    """The probability of an event in each interval; what is left is that of none, with output 0."""

    width = 1

    def log_mass(self, outputs: Tensor) -> Tensor:
        return functional.log_softmax(functional.pad(outputs, (0, 1)), dim=1)

    def survival(self, outputs: Tensor) -> Tensor:
        return 1 - self.log_mass(outputs).exp()[:, :-1].cumsum(1)

    def outputs_for(self, hazard: Any) -> Tensor:
        survival = np.cumprod(1 - hazard)
        mass = -np.diff(survival, prepend=1.0)
        return torch.as_tensor(np.log(mass / survival[-1]), dtype=torch.float32)


class CauseHead:
    """Two hazards per interval, one per cause; survival is that of neither."""

    width = 2

    def survival(self, outputs: Tensor) -> Tensor:
        none = 1 - functional.softmax(functional.pad(outputs, (0, 1)), dim=2)[..., :2].sum(2)
        return none.cumprod(1)

    def outputs_for(self, hazard: Any) -> Tensor:
        each = np.log(hazard / 2 / (1 - hazard))
        return torch.as_tensor(np.stack([each, each], axis=1), dtype=torch.float32)


@dataclass(kw_only=True, repr=False, eq=False)
class Mass(EncoderDecoderEstimator):
    head: ClassVar[Head] = MassHead()

    def loss(self, outputs: Tensor, bucket: Tensor, event: Tensor, weight: Any, detail: Any = None) -> Tensor:
        log_mass = self.head.log_mass(outputs)  # type: ignore[attr-defined]
        own = log_mass.gather(1, bucket.unsqueeze(1)).squeeze(1)
        survival = self.head.survival(outputs).clamp_min(1e-6)
        alive = survival.gather(1, bucket.clamp(max=outputs.shape[1] - 1).unsqueeze(1)).squeeze(1).log()
        return -torch.where(event, own, alive).mean()


@dataclass(kw_only=True, repr=False, eq=False)
class Causes(EncoderDecoderEstimator):
    head: ClassVar[Head] = CauseHead()

    def loss(self, outputs: Tensor, bucket: Tensor, event: Tensor, weight: Any, detail: Any = None) -> Tensor:
        total = torch.logsumexp(outputs, dim=2)  # the logit of either cause
        return discrete_likelihood(total, bucket, event, torch.ones(len(bucket))).mean()


@pytest.fixture(scope="module")
def cohort() -> Any:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(500, 3)).astype(np.float32)
    time = rng.exponential(np.exp(-1.5 * X[:, 0]))
    lost = rng.exponential(2.0, size=500)
    return X, dcsurv.make_outcome(np.minimum(time, lost) + 0.01, time <= lost)


@pytest.mark.parametrize("kind", [Mass, Causes])
@pytest.mark.parametrize("decoder_layers", [0, 1])
def test_a_head_of_ones_own(kind: Any, decoder_layers: int, cohort: Any) -> None:
    X, y = cohort
    settings = {"n_nodes": 8, "encoder_size": 8, "decoder_size": 4, "learning_rate": 0.02, "random_state": 0}
    model = kind(**settings, decoder_layers=decoder_layers, max_epochs=12).fit(X[:350], y[:350])
    curves = model.predict_survival_function(X[350:]).values
    assert (np.diff(curves, axis=1) <= 1e-6).all()
    assert model.score(X[350:], y[350:]) > 0.7


@pytest.mark.parametrize("head", [HazardHead(), MassHead(), CauseHead()])
def test_training_starts_at_the_hazards_of_the_cohort(head: Any) -> None:
    hazard = np.array([0.1, 0.02, 0.3, 0.2])
    survival = head.survival(head.outputs_for(hazard).unsqueeze(0))
    np.testing.assert_allclose(survival.numpy()[0], np.cumprod(1 - hazard), atol=1e-6)
    assert survival_from_logits(HazardHead().outputs_for(hazard).unsqueeze(0)).shape == (1, 4)
