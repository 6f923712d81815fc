"""The account of one erasure as an auditor sees it: against its own record, its signature, and the run that it is about.

Formal guarantees
    An account is compared, entry by entry, with the log of the run that it names; its guarantee is worked out again from
    the run's settings where agt has a formula for it; its signature is over its very bytes. What is not shown: that the
    model was computed as is said.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agt import __version__
from agt.errors import DataMissing
from agt.facts import Standing
from agt.manifest import Broken
from agt.training.removal import removal_budget
from agt.unlearning import signature
from agt.unlearning.account import OUTSIDE, Account, read_account
from agt.unlearning.log import Log
from agt_cli.report.checks import Findings
from agt_cli.unlearn.page import lines, markdown
from agt_cli.verify.record import Record
from agt_cli.verify.removal import check_promise, removal_of
from agt_cli.verify.requests import requests_of

COMMAND = "unlearn"
ACCOUNT = "account.json"
LIMITS = (
    "that the model after it was computed as is said: whoever doubts it trains on the records that are left, and compares",
    "that the log holds every request: one that was never given to agt is in no file",
    "who made it: hashes and seals are no signature; a digest that was kept elsewhere tells this folder from one that was "
    "made to look like it, and so does a signature by a key that came another way (public=OWNER.pub)",
    "that the code which ran was agt's: version and revision are words in the record",
    *OUTSIDE,
)


def account_of(record: Record) -> Account | None:
    """The account of an erasure's record; None: there is none, or none that is sound, which is said."""
    if record.environment.get("rehearsed"):
        record.findings.note(ACCOUNT, "there is none: this is a rehearsal on a copy (rehearse=true), which erased nothing")
        return None
    with record.findings.looking(ACCOUNT):
        record.bound.json(ACCOUNT)  # no key twice
        account = read_account(record.bound.read(ACCOUNT))
        record.findings.ok(ACCOUNT, f"{account.schema}: it does not contradict itself")
        return account
    return None


def run_of(record: Record) -> Path:
    """Where the run lay that an account is about. Raises Broken: the record does not say."""
    place = record.environment.get("trained_run") or record.config.get("run")
    if not isinstance(place, str):
        raise Broken("the record names no place of the run that it is about")
    return Path(place)


def check_account(account: Account, record: Record, run: Record | None, public: bytes | None) -> tuple[str, ...]:
    """An account against its own record, its signature, and the run that it is about; returns what it says, a line each.

    Args:
        run: as it is now, in this state or a later one; None: it could not be looked at.
        public: the owner's key; None: nobody gave one.
    """
    findings = record.findings
    with findings.looking("report"):
        _check_page(account, record)
    with findings.looking("metrics"):
        _check_numbers(account, record)
    with findings.looking("signature"):
        check_signature(record, public)
    log = None if run is None else requests_of(run)
    if run is None or log is None:
        findings.unchecked("entry", "the run that it is about, or its request log, could not be looked at")
    else:
        with findings.looking("entry"):
            _check_entry(account, log, run)
            _check_spent(account, run, findings)
            _check_done(account, log)
            findings.ok(
                "entry", f"entry {account.state.entry} of the run's request log, and the states around it, say the same"
            )
    return tuple(line for line in lines(account) if not line.startswith(" "))


def check_signature(record: Record, public: bytes | None) -> None:
    """Whether somebody signed it, and who.

    Raises:
        Broken: the signature is none of these bytes, or another's than ``public``'s; or none is there and one is asked for.
    """
    bound, findings = record.bound, record.findings
    names = [name for name in (signature.SIGNATURE, signature.PUBLIC) if bound.holds(name)]
    if not names:
        if public is not None:
            raise Broken("it is not signed, and public= asks for a signature")
        findings.note("signature", "not signed", "agt unlearn with key=OWNER.pem signs an account")
        return
    if len(names) == 1:
        raise Broken(f"{names[0]} lies there alone: a signature and its public key go together")
    signed, beside = bound.read(signature.SIGNATURE), bound.read(signature.PUBLIC)
    try:
        key = signature.same(beside)
        signature.check(bound.read(ACCOUNT), signed, key)
    except DataMissing as error:
        findings.unchecked("signature", str(error))
        if public is not None:
            raise Broken("public= asks for a signature, and none could be checked here") from None
        return
    if public is None:
        words = f"by whoever holds the key of {signature.PUBLIC}: whose that is, these files cannot tell"
        findings.note("signature", words, "give public=OWNER.pub as the owner handed it over another way")
    elif public != key:
        raise Broken(f"it is signed by another key than public= is: {signature.PUBLIC} is not the owner's")
    else:
        findings.ok("signature", "by the owner's key: exactly these bytes of account.json")


def _check_page(account: Account, record: Record) -> None:
    """The page for people is made of the account for programs, and of nothing else."""
    if account.agt != __version__:
        words = f"written by agt {account.agt}, and this is {__version__}: their words may differ"
        record.findings.unchecked("report", words)
        return
    if record.bound.read("report.md").decode() != markdown(account):
        raise Broken("report.md says something else than account.json")
    record.findings.ok("report", "report.md is account.json in words")


def _check_numbers(account: Account, record: Record) -> None:
    """What metrics.json repeats is the same there."""
    told: dict[str, Any] = {"removed": account.done.records, **account.done.facts}
    if account.budget is not None:
        told |= {"budget_spent": account.budget.spent, "budget": account.budget.total}
    for name, value in told.items():
        if name in record.metrics and record.metrics[name] != value:
            raise Broken(f"metrics.json says {name} = {record.metrics[name]}, and {ACCOUNT} {value}")


def _check_entry(account: Account, log: Log, run: Record) -> None:
    """The log's entry, and the states on its two sides, are those of the account.

    Raises:
        Broken: one is not.
    """
    state, count = account.state, int(account.state.log.split(":")[0])
    if count > len(log.entries):
        raise Broken(f"it names entry {count} of the request log, which has {len(log.entries)}: an older copy of the run?")
    entry, last = log.entries[state.entry - 1], log.entries[count - 1]
    after = log.entries[count].before if count < len(log.entries) else run.bound.manifest.digest
    kind = "removed" if account.updated else "pending"
    removed = len({record for each in log.batch(entry.number) for record in each.records}) if account.updated else 0
    promised = {**dict.fromkeys(("method", "exact", "eps", "delta", "adaptive")), **entry.promise}
    promise = json.loads(json.dumps(asdict(account.promise)))
    before = 0 if kind == "pending" else len(Log(log.entries[: state.entry - 1]).waiting_units)
    pairs: dict[str, tuple[object, object]] = {
        "where the log ends": (state.log, f"{last.number}:{last.hash}"),
        "the state before": (state.before, entry.before),
        "the state after": (state.after, after),
        "what became of it": (kind, entry.kind),
        "the method": (account.done.method, entry.method),
        "what the ids named": (account.asked.by, entry.by),
        "people": (account.asked.people, len(entry.units)),
        "records asked for": (account.asked.records, len(entry.records)),
        "people who had asked before": (account.asked.pending, before),
        "ids of test records": (account.asked.untrained, entry.facts.get("untrained", 0)),
        "when it was noted": (account.asked.time, entry.time),
        "keyed hashes": (account.asked.hashes, len({*entry.records, *entry.units})),
        "records removed": (account.done.records, removed),
        "the guarantee": ({name: promise.get(name) for name in promised}, promised),
        "what it does not show": (account.outside[-len(OUTSIDE) :] if account.agt == __version__ else OUTSIDE, OUTSIDE),
    }
    for name, (ours, theirs) in pairs.items():
        if ours != theirs:
            raise Broken(f"{name}: {ACCOUNT} says {ours}, and the run's log {theirs}")


def _check_done(account: Account, log: Log) -> None:
    """What the log keeps beside the promise (``Removal.plain``) is what the account says. Raises Broken: it is not."""
    done, budget = account.done, account.budget
    told = {"records": done.records, "seconds": done.seconds, "facts": done.facts, "words": list(done.words)}
    told["allowance"] = None if budget is None else vars(budget)
    kept = log.entries[account.state.entry - 1].facts.get("removal", told)
    for name, value in told.items():
        if not isinstance(kept, dict) or kept.get(name) != value:
            raise Broken(f"{name} of what was done: {ACCOUNT} and the run's log say different things")


def _check_spent(account: Account, run: Record, findings: Findings) -> None:
    """The guarantee and the budget of a Newton step, by the run's settings and by what it left.

    Raises:
        Broken: they are not.
    """
    if account.done.method != "newton":
        return
    check_promise(vars(account.promise), run)
    config, strength, residual = removal_of(run)
    budget, told = removal_budget(config, strength), account.budget
    total = config.tolerance if budget is None or config.bound == "measured" else budget
    if told is None or told.total != total or told.spent > total:
        raise Broken(f"the removal budget is {total!r} by the run's settings, and {ACCOUNT} says {told}")
    if account.state.after == run.bound.manifest.digest and told.spent != residual:
        raise Broken(f"{ACCOUNT} says that {told.spent!r} is spent, and the run's state has a residual of {residual!r}")
    void = any(fact.standing is Standing.VOID for fact in account.promise.assumptions)
    if not void and (config.seed is not None or config.masking == "loss"):
        raise Broken(f"masking={config.masking}, seed={config.seed}: something does not hold there, and it does not say so")
    findings.ok("removal budget", f"of the account, worked out again: {told.spent:.6g} of {total:.6g}")
