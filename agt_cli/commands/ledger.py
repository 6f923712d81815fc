"""agt ledger init|show|verify|admit NAME: one population's budget; it writes the ledger and its second head alone."""

from collections.abc import Mapping
from typing import Any

from agt.errors import ConfigError
from agt.ledger.head import head_file
from agt.ledger.ledger import Ledger
from agt.ledger.words import budget
from agt.mechanisms.account import Allowance
from agt.settings import validate
from agt_cli.report.console import Console
from agt_cli.report.ledger import say_balance, say_verified
from agt_cli.runs.ledger import LedgerConfig


def configure(config: Mapping[str, Any]) -> LedgerConfig:
    """Validate the settings (ConfigError)."""
    return validate(LedgerConfig, config, "")


def run(config: LedgerConfig, console: Console) -> dict[str, Any]:
    """Do it, and say what the ledger says."""
    config = config.settled(console.note)
    return {"init": _init, "show": _show, "verify": _verify, "admit": _admit}[config.action](config, console)


def _init(config: LedgerConfig, console: Console) -> dict[str, Any]:
    subject = config.subject()
    population = config.population(subject)
    if subject and subject.relation:
        population.check_relation(subject.relation)
    with Ledger.create(config.path, population, config.second_head, [subject.table] if subject else []) as ledger:
        console.say(f"ledger: {ledger.path}, {budget(population.allowance)} for good")
        for line in _shares(population.allowance):
            console.say(line)
        for line in ledger.words():
            console.say(line)
        head = ledger.last.head
        console.say(f"head: {head}")
        if not subject:
            console.note(f"next: agt ledger admit {config.ledger} run=FOLDER, before anything can be paid from it")
        return {"ledger": str(ledger.path), "head": str(head), "words": ledger.words()}


def _show(config: LedgerConfig, console: Console) -> dict[str, Any]:
    with Ledger.open(config.path, config.second_head, writing=False) as ledger:
        return say_balance(ledger, console)


def _verify(config: LedgerConfig, console: Console) -> dict[str, Any]:
    with Ledger.open(config.path, config.second_head, writing=False) as ledger:
        return say_verified(ledger, ledger.verify(config.noted), console)


def _admit(config: LedgerConfig, console: Console) -> dict[str, Any]:
    subject, place = config.subject(), config.second_head and head_file(config.second_head, config.path)
    if subject is None and place is None:
        raise ConfigError("agt ledger admit: what? run=FOLDER, data=DIGEST table=NAME, or head=FILE for a second head")
    there = place is not None and place.exists()
    if config.lost and place is not None:
        Ledger.replace_head(config.path, place)
        there = True
    with Ledger.open(config.path, place if there else None) as ledger:
        if place is not None and not there:
            ledger.move_head(place)
        if subject is not None:
            if subject.relation:
                ledger.population.check_relation(subject.relation)
            ledger.admit(subject.table, config.unit)
        for line in ledger.words():
            console.say(line)
        console.say(f"head: {ledger.last.head}")
        return {"ledger": str(ledger.path), "head": str(ledger.last.head), "words": ledger.words()}


def _shares(allowance: Allowance) -> list[str]:
    """How delta is divided, which is fixed with it."""
    if not allowance.delta:
        return []
    leak, share = float(allowance.leak), f"(total.leaks={allowance.leaks:g})"
    return [f"of delta, {leak:g} is for releases with a delta of their own, the rest for Gaussian ones {share}"]
