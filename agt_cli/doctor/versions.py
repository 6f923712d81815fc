"""Python and packages against what agt asks for, and the combinations that are known to break."""

import sys
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from importlib.util import find_spec
from pathlib import Path

import torch
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import agt_cli
from agt.data.medmnist_info import INSTALL
from agt.provenance import package_version
from agt_cli.report.checks import Findings

DISTRIBUTION = "agt-certified"
NEEDED_FOR = {
    "text": "agt data prepare imdb",
    "dpsgd": "the DP-SGD baselines of agt reproduce",
    "cluster": "sweeps by joblib or submitit",
}
"""What each extra is for, as far as it is not the developers' own."""


def check(findings: Findings) -> None:
    """Versions, each against its range."""
    with findings.looking("versions"):
        python, requirements = declared()
        here = ".".join(map(str, sys.version_info[:3]))
        findings.compare("python", here in python, f"{here} ({python} is needed)", f"{here}, and {python} is needed")
        needed = [one for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
        wrong = [words for one in needed if (words := _wrong(one))]
        for words in wrong:
            findings.problem("packages", words, "install agt again into an environment of its own (make run, or pip)")
        if not wrong:
            findings.ok("packages", f"{len(needed)} that agt needs, each in its range; torch {torch.__version__}")
        _extras(requirements, findings)
    with findings.looking("torchvision"):
        _torchvision(findings)
    if find_spec("medmnist") is None:
        findings.note("medmnist", "not installed: dataset=octmnist, pneumoniamnist and medmnist need it", INSTALL)


def declared() -> tuple[SpecifierSet, list[Requirement]]:
    """What agt says it needs: of a source tree its pyproject.toml, else what was installed with it.

    Raises:
        ValueError: neither is there.
    """
    tree = Path(agt_cli.__file__).resolve().parent.parent / "pyproject.toml"
    if tree.is_file():
        project = tomllib.loads(tree.read_text(encoding="utf-8"))["project"]
        extras = (
            Requirement(f"{line}; extra == '{extra}'")
            for extra, lines in project["optional-dependencies"].items()
            for line in lines
        )
        return SpecifierSet(project["requires-python"]), [*map(Requirement, project["dependencies"]), *extras]
    try:
        installed = metadata(DISTRIBUTION)
    except PackageNotFoundError:
        raise ValueError(f"{DISTRIBUTION} is not installed, and no pyproject.toml lies beside it") from None
    return SpecifierSet(installed["Requires-Python"]), [*map(Requirement, installed.get_all("Requires-Dist") or ())]


def _wrong(requirement: Requirement) -> str:
    """Empty, or how a package is not what is needed."""
    there = package_version(requirement.name)
    if there is None:
        return f"{requirement.name} is not installed ({requirement.specifier} is needed)"
    if requirement.specifier.contains(there, prereleases=True):
        return ""
    return f"{requirement.name} {there}, and {requirement.specifier} is needed"


def _extras(requirements: list[Requirement], findings: Findings) -> None:
    for extra, use in NEEDED_FOR.items():
        lacking = [one.name for one in requirements if _of_extra(one, extra) and package_version(one.name) is None]
        if lacking:
            remedy = f"pip install '{DISTRIBUTION}[{extra}]'"
            findings.note(f"extra {extra}", f"not installed ({', '.join(lacking)}); only {use} needs it", remedy)


def _of_extra(requirement: Requirement, extra: str) -> bool:
    marker = requirement.marker
    return marker is not None and marker.evaluate({"extra": extra}) and not marker.evaluate({"extra": ""})


def _torchvision(findings: Findings) -> None:
    """Its wheels for CUDA break on a CPU build of torch, and break transformers and medmnist with them."""
    there = package_version("torchvision")
    if there and torch.version.cuda is None and sys.platform == "linux" and "+cpu" not in there:
        findings.note(
            "torchvision",
            f"{there} lies beside a CPU build of torch: such pairs break, and transformers and medmnist with them",
            "pip uninstall torchvision (agt needs none), or take the build that matches",
        )
