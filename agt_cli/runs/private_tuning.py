"""Private tuning of released weights: what it takes from the data, what it spends, and what it leaves in its folder."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agt.certificates.conditions import Condition
from agt.errors import ConfigError
from agt.facts import Fact, Grounds, declared
from agt.mechanisms.portable import CLAIM
from agt.mechanisms.rigour import Output
from agt.mechanisms.statement import Statement, of_release
from agt.mechanisms.tuning import Contestant, Tuned, TunedWeights, prepare_tuned
from agt.randomness import Randomness, SeededRandomness, SystemRandomness
from agt.tuning import linear_head
from agt_cli.report.console import Console
from agt_cli.report.record import RunRecord
from agt_cli.report.release_md import predict_report
from agt_cli.runs.account import Account, account_of, people_of
from agt_cli.runs.choices import still_chosen
from agt_cli.runs.experiment import write_experiment
from agt_cli.runs.ledger import unit_of
from agt_cli.runs.mechanisms import TotalConfig
from agt_cli.runs.publish import write_weights
from agt_cli.runs.source import settled
from agt_cli.runs.spending import Spending, of_data, spending, unfinished
from agt_cli.runs.tuning import Choice, TuneConfig, TuningData

NOTHING = "the number of trials, drawn at random, was none: nothing is released, and the budget is spent all the same"


@dataclass(frozen=True)
class PrivateTuning:
    """A private choice among candidates.

    Attributes:
        tune: how.
        total: the budget of all of it.
        given: the settings that candidates change, and what they were chosen on.
        choices: the candidates.
        path: of the experiment with the settings chosen.
    """

    tune: TuneConfig
    total: TotalConfig
    given: Choice
    choices: Sequence[Choice]
    path: Path

    def run(self, record: RunRecord, console: Console) -> dict[str, Any]:
        """Prepare the release, say on disk what it spends, draw it and write it."""
        seed, data = self.tune.seed, TuningData(self.tune.public, console)
        randomness: Randomness = SystemRandomness() if seed is None else SeededRandomness(seed)
        contestants, conditions = self._contestants(data)
        mechanism = TunedWeights.of(
            self.tune.trials, float(self.total.eps or 0.0), self.total.delta, self.tune.public is None
        )
        release, simulated = prepare_tuned(contestants, mechanism, conditions), randomness.simulated
        loaded, name, guarantee = data.prepared(self.given).loaded, "private tuning", mechanism.guarantee
        subject, people = of_data(loaded.digest), people_of(loaded, self.given.settings, self.given.config)
        earlier = [] if simulated else unfinished(record, subject)
        record.environment(**subject, dataset=loaded.name)
        record.conditions(conditions)
        with nullcontext(Account()) if simulated else account_of(record.config.get("ledger"), people) as account:
            receipt = account.pay(people.charge(guarantee, Output.WEIGHTS.value, name), 1)
        told = release.words(simulated, receipt.words)
        claim = of_release(release, name, words=told, simulated=simulated, account=receipt.counted)
        words = [*claim.words, *earlier]
        about = Spending("weights", name, str(guarantee), release.spent, 0, loaded.name, simulated, receipt.facts)
        with spending(record, subject, about):
            lines, result = self._publish(release.draw(randomness), contestants, data, claim, record)
            record.write(CLAIM, replace(claim, issued=datetime.now(UTC).date().isoformat()).content)
            publishable = None if simulated else "The folder `release`, and `released_weights.safetensors`"
            listed = [*lines, *words, *(f"candidate: {choice.words}" for choice in self.choices)]
            report = predict_report(
                loaded.name, "Any number of queries", f"weights from {name}", listed, publishable, record
            )
            record.report(report)
            digest = record.finish()
        for line in (*lines, *words):
            console.say(line)
        console.say(f"digest: {digest}")
        return {"metrics": record.metrics, "claim": words[0], "words": words, "digest": digest, **result}

    def _contestants(self, data: TuningData) -> tuple[list[Contestant], tuple[Condition, ...]]:
        """The candidates' heads, untrained, and conditions a to g of all of them together."""
        given, contestants = self.given.settings, []
        self._check_counting()
        chosen = still_chosen(given.choices, given.training.chosen_from, data.prepared(self.given).loaded, given.source)
        for choice in self.choices:
            dataset = data.prepared(choice).dataset
            rows = dataset.train if self.tune.public is None else data.rows(choice)
            contestants.append(Contestant(linear_head(dataset, replace(choice.settings, choices=chosen)), rows))
        each = [contestant.model.conditions for contestant in contestants]
        together = [_together(same) for same in zip(*each, strict=True)]
        return contestants, tuple(c.and_(*self._declared(data)) if c.letter == "e" else c for c in together)

    def _check_counting(self) -> None:
        """One claim, and one debit, is about one relation and one unit: those outside the grid."""
        for choice in self.choices:
            same = choice.settings.relation == self.given.settings.relation
            if not same or unit_of(choice.config) != unit_of(self.given.config):
                raise ConfigError(
                    f"tune.grid: {choice.words}: one claim is about one relation and one unit: set them outside the grid"
                )

    def _declared(self, data: TuningData) -> Iterator[Fact]:
        """What condition e rests on beside each candidate's own."""
        yield declared(
            "the candidates that private tuning chose from are public constants (tune.grid)",
            "one of them is there because of results on the private records",
        )
        if self.tune.public is not None:
            yield declared(
                f"{data.words}, which trials are scored on, are public with their labels (tune.public)",
                "one of them is private, or is among them because of private ones",
            )

    def _publish(
        self,
        drawn: Tuned | None,
        contestants: Sequence[Contestant],
        data: TuningData,
        claim: Statement,
        record: RunRecord,
    ) -> tuple[list[str], dict[str, Any]]:
        """Write what was drawn; nothing of the trials that lost."""
        if drawn is None:
            return [NOTHING], {}
        choice, model, released = self.choices[drawn.candidate], contestants[drawn.candidate].model, drawn.released
        record.add_metrics(chosen=drawn.candidate, score=drawn.score, simulated=int(released.simulated))
        config = {**choice.config, "training": {**choice.config["training"], "chosen_on": "data"}}
        write_experiment(self.path, config, f"chosen by private tuning on the training records: {choice.words}")
        lines, result = write_weights(model, released, settled(config, data.prepared(choice).loaded), claim, record)
        lines = [
            f"chosen: {choice.words}; score {drawn.score:g}",
            *lines,
            f"experiment: {self.path}: certificates of a run with these settings carry no privacy claim (condition e): its "
            "data chose them",
        ]
        return lines, {"chosen": dict(choice.changes), "score": drawn.score, "experiment": str(self.path), **result}


def _together(conditions: Sequence[Condition]) -> Condition:
    """One condition of several candidates: every fact that any of them rests on."""
    facts = dict.fromkeys(fact for condition in conditions for fact in condition.grounds.facts)
    return replace(conditions[0], grounds=Grounds(tuple(facts)))
