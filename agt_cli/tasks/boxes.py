"""A head trained with parameter boxes: any layers, any relation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from agt.bounds.network import Network
from agt.certificates.box import Certificates, certify
from agt.certificates.conditions import Condition, assess
from agt.facts import proved
from agt.models.heads import build_head
from agt.numeric import signed_margins
from agt.training.batches import BatchPlan
from agt.training.loop import Progress, Trained, train
from agt.training.noise import NoisePlan
from agt_cli.report.console import Console
from agt_cli.report.figures import map_levels
from agt_cli.report.finished import FinishedRun
from agt_cli.report.record import RunRecord
from agt_cli.tasks.noise import GIVEN_THE_DRAW, noise_draws, noise_plan
from agt_cli.tasks.prepare import Prepared, Settings

BLOCK = 8192


@dataclass(frozen=True)
class BoxModel:
    """The nominal head and its box for every k (a ``tasks.model.Model``)."""

    prepared: Prepared
    settings: Settings
    head: nn.Sequential
    trained: Trained

    @classmethod
    def fit(cls, prepared: Prepared, settings: Settings, console: Console) -> "BoxModel":
        """Train with bounds."""
        dataset, ks, plan = prepared.dataset, settings.kgrid.ks, _plan(prepared, settings)
        head = _head(prepared, settings)
        if prepared.initial and not start_from(head, prepared.initial):
            console.note("the head differs in shape from the encoder's base model: it starts from random parameters")
        with console.progress(f"training, k = {ks[0]}..{ks[-1]} ({len(ks)} values)") as report:

            def on_progress(at: Progress) -> None:
                report(at.step, at.steps, at.done, at.total)

            trained = train(
                head,
                prepared.classes,
                dataset.train,
                dataset.declared_size,
                settings.training,
                settings.relation,
                ks,
                settings.compute,
                on_progress,
                noise_draws(settings, plan, head),
            )
        return cls(prepared, settings, head, trained)

    @classmethod
    def load(cls, prepared: Prepared, settings: Settings, finished: FinishedRun) -> "BoxModel":
        """Read the boxes back."""
        head = _head(prepared, settings)
        like = {name: tensor.detach() for name, tensor in head.state_dict().items()}
        nominal, lower, upper = finished.boxes(settings.kgrid.ks, like)
        trained = Trained(settings.kgrid.ks, nominal, lower, upper, _plan(prepared, settings))
        return cls(prepared, settings, head, trained)

    def save(self, record: RunRecord) -> None:
        """model.safetensors and bounds/."""
        record.model(self.trained.ks, self.trained.nominal, self.trained.lower, self.trained.upper)

    @property
    def plan(self) -> BatchPlan:
        """The batch plan."""
        return self.trained.plan

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Conditions a-g; under noise, given the draw."""
        settings = self.settings
        found = assess(
            self.prepared.dataset, settings.kgrid, settings.relation, settings.training, self.plan, settings.choices
        )
        if settings.noise is None:
            return found
        return tuple(c.and_(proved(GIVEN_THE_DRAW)) if c.letter == "d" else c for c in found)

    @property
    def noise(self) -> NoisePlan | None:
        """The noise of each step; None without any."""
        return noise_plan(self.settings, self.plan, self._parameters)

    @property
    def metrics(self) -> dict[str, float | int | str]:
        """Sizes, and the noise."""
        sizes = {"parameters": self._parameters, "k_count": len(self.trained.ks), "k_max": self.trained.ks[-1]}
        noise = {"noise_sigma": self.noise.sigma, "noise_mu": self.noise.mu} if self.noise else {}
        return {**sizes, **noise}

    @property
    def _parameters(self) -> int:
        return sum(tensor.numel() for tensor in self.trained.nominal.values())

    def predict(self, features: np.ndarray) -> np.ndarray:
        """[n] int64 labels."""
        network = self._network()
        labels = [network.predict(x, dict(self.trained.nominal)) for x in self._blocks(features)]
        return torch.cat(labels).numpy().astype(np.int64)

    def margins(self, features: np.ndarray) -> np.ndarray:
        """[1, n] the logit, or logit difference, of two classes; else [classes, n] each logit less the best other."""
        network = self._network()
        logits = [network.logits(x, dict(self.trained.nominal)) for x in self._blocks(features)]
        return signed_margins(torch.cat(logits).numpy())

    def certify(self, features: np.ndarray, console: Console, label: str, shown: bool = False) -> Certificates:
        """Certify against every box, or those of the few k that a map tells apart."""
        trained = _at(self.trained, map_levels(self.trained.ks)) if shown else self.trained
        with console.progress(label, "query") as report:

            def on_progress(at: Progress) -> None:
                report(at.step, at.steps, at.done, at.total)

            return certify(
                self.head,
                self.prepared.classes,
                trained,
                features,
                self.settings.relation.name,
                self.settings.training,
                self.settings.compute,
                on_progress,
            )

    def _network(self) -> Network:
        return Network.of(self.head, self.settings.training.loss, self.prepared.classes)

    def _blocks(self, features: np.ndarray) -> Iterator[Tensor]:
        dtype = getattr(torch, self.settings.training.dtype)
        for start in range(0, len(features), BLOCK):
            block = np.array(features[start : start + BLOCK], order="C")  # a copy: features may be read-only
            yield torch.from_numpy(block).to(dtype)


def start_from(head: nn.Sequential, initial: Mapping[str, Tensor]) -> bool:
    """Copy ``weight.0``, ``bias.0``, ``weight.1``, ... into the head's linear layers; False if a shape differs."""
    layers = [layer for layer in head if isinstance(layer, nn.Linear)]
    pairs = [(getattr(layer, kind), f"{kind}.{i}") for i, layer in enumerate(layers) for kind in ("weight", "bias")]
    if {name for _, name in pairs} != set(initial) or any(p.shape != initial[name].shape for p, name in pairs):
        return False
    with torch.no_grad():
        for parameter, name in pairs:
            parameter.copy_(initial[name])
    return True


def _head(prepared: Prepared, settings: Settings) -> nn.Sequential:
    shape = prepared.dataset.train.features.shape[1:]
    return build_head(shape, prepared.classes, settings.model, settings.training)


def _plan(prepared: Prepared, settings: Settings) -> BatchPlan:
    dataset, training = prepared.dataset, settings.training
    return BatchPlan.of(training.batch, training.epochs, dataset.declared_size, len(dataset.train))


def _at(trained: Trained, ks: tuple[int, ...]) -> Trained:
    """The boxes of some k of the grid."""
    rows = [trained.ks.index(k) for k in ks]
    lower, upper = ({n: t[rows] for n, t in end.items()} for end in (trained.lower, trained.upper))
    return Trained(ks, trained.nominal, lower, upper, trained.plan)
