"""Code and proofs name one another: every lemma that code uses exists, and every lemma is used."""

import re
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
PAGES = sorted(path for path in (HOME / "docs/proofs").glob("*.md") if path.name != "README.md")
REFERENCE = re.compile(r"(?:Lemma|Theorem) (\d+) of docs/proofs/([a-z_]+)\.md")
HEADING = re.compile(r"^### (?:Lemma|Theorem) (\d+)\b", re.MULTILINE)
PARTS = ("## What is proved", "## Symbols", "## Example")


def lemmas_of(page: Path) -> list[tuple[str, str]]:
    """Return (page, number) of each lemma of a page, in order."""
    return [(page.stem, number) for number in HEADING.findall(page.read_text())]


def references() -> set[tuple[str, str]]:
    """Return (page, number) of each lemma that code names, wherever a line is broken."""
    named = set()
    for folder in ("agt", "agt_cli", "agt_audit", "experiments"):
        for path in (HOME / folder).rglob("*.py"):
            text = re.sub(r"\s+(?:# )?", " ", path.read_text())
            named |= {(page, number) for number, page in REFERENCE.findall(text)}
    return named


def test_every_lemma_that_code_names_exists() -> None:
    proved = {lemma for page in PAGES for lemma in lemmas_of(page)}
    assert references() <= proved


def test_every_lemma_is_named_in_code() -> None:
    proved = {lemma for page in PAGES for lemma in lemmas_of(page)}
    assert proved <= references()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_numbers_its_lemmas_from_one_and_has_every_part(page: Path) -> None:
    numbers = [int(number) for _, number in lemmas_of(page)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [part for part in PARTS if part not in page.read_text()] == []
