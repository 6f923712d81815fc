"""agt verify PATH: is a run, a release or a ledger what was made, and what does it rest on? It writes at most a page."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt.disk import write_atomic
from agt.errors import CheckError, ConfigError
from agt.ledger.chain import Head
from agt.unlearning.signature import read_public
from agt_cli.report.console import Console
from agt_cli.report.html import report_page
from agt_cli.runs.prepare import only_keys
from agt_cli.runs.queries import digest_of
from agt_cli.verify.ledger import Known
from agt_cli.verify.page import headline, markdown, say
from agt_cli.verify.verification import Verification

PAGES = (".html", ".md")


@dataclass(frozen=True)
class VerifyConfig:
    """What is looked at.

    Attributes:
        path: what lies there.
        digest: that it must have; None: any.
        page: where the audit is written to as well; None: nowhere.
        ledger: that counts a release, by name or path; None: where the release says.
        head: where a ledger's chain ended at some time, or the file of its second head; None: nobody said.
        public: the owner's key, which must have signed an account of an erasure; None: nobody said.
    """

    path: Path
    digest: str | None
    page: Path | None
    ledger: str | None
    head: Known
    public: bytes | None


def configure(config: Mapping[str, Any]) -> VerifyConfig:
    """Validate the settings.

    Raises:
        ConfigError: no digest, or a page that would lie in what is verified, or over something else.
    """
    only_keys(config, ("path", "digest", "page", "ledger", "head", "public"))
    path, page = Path(str(config["path"])).expanduser(), config.get("page")
    page = None if page is None else Path(str(page))
    if page is not None:
        if page.suffix not in PAGES:
            raise ConfigError(f"page={page}: give a name that ends with {' or '.join(PAGES)}")
        if page.exists():
            raise ConfigError(f"page={page}: something is there already, and nothing is written over: name a new file")
        if page.resolve().is_relative_to(path.resolve()):
            raise ConfigError(
                f"page={page}: lies in the folder that is verified, which must stay as it is: name another place"
            )
    head, ledger = config.get("head"), config.get("ledger")
    noted: Known = None if head is None else Head.read(str(head))
    if head is not None and noted is None:
        if not os.path.exists(str(head)):
            raise ConfigError(f"head={head}: expected COUNT:HASH, as agt ledger show prints it, or the second head's file")
        noted = Path(str(head))
    public = None if config.get("public") is None else read_public(Path(str(config["public"])).expanduser())
    return VerifyConfig(path, digest_of(config, "digest"), page, None if ledger is None else str(ledger), noted, public)


def run(config: VerifyConfig, console: Console) -> dict[str, Any]:
    """Look, say what was seen, and write the page.

    Raises:
        CheckError: something does not verify.
    """
    with console.progress(f"verifying {config.path}", "file") as report:
        told = (config.ledger, config.head, config.public)
        subject = Verification(lambda done, files: report(done, files, done, files), *told).look(config.path, config.digest)
    say(subject, console)
    if config.page is not None:
        text = markdown(subject)
        page = report_page(text, lambda _: None) if config.page.suffix == ".html" else text
        write_atomic(config.page, page.encode())
        console.note(f"page: {config.page}")
    result = {"path": str(config.path), "verifies": not subject.problems, **subject.as_json()}
    if subject.problems:
        raise CheckError(headline(subject), {"command": "verify", **result})
    return result
