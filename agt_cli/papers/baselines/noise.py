"""DP-SGD's noise inside certified training (000, Algorithm 1): the nominal weights of such a run, as a baseline."""

from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass as validated

from agt.settings import STRICT, BatchConfig, KGridConfig, Positive, RelationConfig, TrainingConfig
from agt.training.batches import BatchPlan
from agt.training.loop import train
from agt.training.noise import NoiseConfig, draw_noise, plan_noise, step_sensitivity
from agt.training.recipe import Recipe
from agt_cli.papers.baselines.released import RECORD, Bench, Weights


@validated(frozen=True, config=STRICT)
class NoisyAgt:
    """Certified training with noise: full batch, ``epochs`` steps of plain SGD at ``lr``, elementwise clip."""

    epochs: Annotated[int, Field(ge=1)]
    lr: Positive
    clip: Positive
    protects: ClassVar[str] = RECORD
    caveat: ClassVar[str] = "the box around these weights holds for every draw, as without noise, and is not released"

    def fit(self, bench: Bench, eps: float, delta: float, seed: int) -> Weights:
        """As ``Baseline.fit``; the proof is in ``agt.training.noise``."""
        batch = BatchConfig(n_max=2 * bench.size + 10)
        training = TrainingConfig(loss=bench.training.loss, epochs=self.epochs, lr=self.lr, clip=self.clip, batch=batch)
        plan = BatchPlan.of(batch, self.epochs, bench.size, len(bench.records))
        parameters = {name: p.detach() for name, p in bench.head.named_parameters()}
        scalars = sum(p.numel() for p in parameters.values())
        sensitivity = step_sensitivity("add_remove", self.clip, scalars, plan.normalizer)
        noise = plan_noise(NoiseConfig(epsilon=eps, delta=delta, seed=seed), sensitivity, plan.epochs)

        def draws(step: int) -> Weights:
            return draw_noise(parameters, noise, seed, step)

        relation = RelationConfig(name="add_remove")
        recipe = Recipe(bench.classes, training, relation, KGridConfig(max=0), bench.compute, bench.size)
        return dict(train(bench.head, recipe, bench.single, noise=draws).nominal)
