"""A folder of released weights, as anybody may have it from anybody: what it says, and what of that can be worked out."""

import re
from io import BytesIO
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from agt.lattice import step_of
from agt.manifest import Broken
from agt.mechanisms.composition import total
from agt.mechanisms.guarantee import GaussianDP
from agt.mechanisms.portable import RELEASE, WEIGHTS, Portable
from agt.mechanisms.statement import read_claim
from agt_cli.report.checks import Findings
from agt_cli.verify.bound import Bound
from agt_cli.verify.budget import guarantee_among

CLAIM = "claim.json"
ARRAYS = 2**30  # bytes of all arrays together, unpacked
_TOTAL = re.compile(r"\((?P<eps>[\d.e+-]+), (?P<delta>[\d.e+-]+)\)-differentially private in all")


def check_portable(bound: Bound, findings: Findings) -> Portable | None:
    """Read it, and work out what can be; None: it is not readable."""
    portable, target = None, ""
    with findings.looking("release.json"):
        bound.json(RELEASE)
        _unpacked(bound.read(WEIGHTS, ARRAYS))
        portable = Portable.open(bound.folder, bound.manifest.digest)
        target = str(portable.source.get("_target_"))
        findings.ok("release.json", f"of the form that agt writes: {len(portable.classes)} classes, {portable.name}")
    if portable is None or not target:
        return None
    if not target.startswith("agt."):
        findings.note("code", f"its queries would be read by {target}, no part of agt; nothing of it was imported here")
    with findings.looking("noise"):
        check_lattice(portable.weight, portable.noise, findings)
    with findings.looking("budget"):
        _check_words(portable, findings)
    if bound.holds(CLAIM):
        with findings.looking(CLAIM):
            bound.json(CLAIM)  # no key twice
            claimed = read_claim(bound.read(CLAIM))
            if not claimed.publishable or claimed.guarantee.value != guarantee_among(portable.noise):
                raise Broken(f"{CLAIM} is of {claimed.guarantee.value}, the weights of {guarantee_among(portable.noise)}")
            findings.ok(CLAIM, f"{claimed.schema}: the same guarantee; its totals and curve are not below the truth")
    return portable


def check_lattice(weight: np.ndarray, noise: Any, findings: Findings) -> None:
    """Released weights are multiples of a step that sigma alone decides: what is not was changed after the draw."""
    sigma, step = float(noise["sigma"]), float(noise["step"])
    if not (sigma > 0 and step == step_of(sigma)):
        raise Broken(f"step = {step!r} is not the one of sigma = {sigma!r}")
    if not np.isfinite(weight).all() or np.fmod(weight, step).any():
        raise Broken("a weight is no multiple of the step: it was not drawn so")
    findings.ok("weights", f"{weight.size}, all multiples of the step that sigma = {sigma:.6g} has")


def _check_words(portable: Portable, findings: Findings) -> None:
    guarantee = guarantee_among(portable.noise)
    said = [match for line in portable.words if (match := _TOTAL.search(line))]
    if str(guarantee) not in portable.words[0]:
        raise Broken(f"its first words are no claim of {guarantee}: {portable.words[0]}")
    for match in said if isinstance(guarantee, GaussianDP) else ():
        found = total(guarantee, 1, float(match["delta"]))
        if f"{found.eps:.6g}" != match["eps"]:
            raise Broken(f"its words say {match[0]}; {guarantee} comes to {found}")
    findings.ok("budget", f"worked out again: {guarantee}{''.join(f', {match[0]}' for match in said)}")


def _unpacked(content: bytes) -> None:
    """Raise Broken where an npz would unpack to more than anybody's weights."""
    try:
        size = sum(entry.file_size for entry in ZipFile(BytesIO(content)).infolist())
    except BadZipFile as error:
        raise Broken(f"{WEIGHTS} is no npz ({error})") from None
    if size > ARRAYS:
        raise Broken(f"{WEIGHTS} would unpack to {size:,} bytes: it is not read")
