"""A folder and its manifest: which of its files are, byte for byte, the ones that it was finished with."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agt.manifest import NAME, Broken, Manifest
from agt.unlearning.keys import NAME as KEY
from agt_cli.latest import LOCK
from agt_cli.report.checks import Findings
from agt_cli.report.swap import COMMIT, NEXT
from agt_cli.report.swap import LOCK as SWAPPING
from agt_cli.report.unfinished import CHECKPOINTS
from agt_cli.runs.waiting import ABSTAINED
from agt_cli.verify.reading import TEXT, Inventory, file_sha256, parsed, read, settings

BESIDE = (KEY, ABSTAINED.as_posix())  # of a run with requests to erase: no state's, and so listed nowhere
STAGED = (f"{NEXT}/", f"{COMMIT}/")  # of a state that gives way to the next
SHOWN = 12  # files that are named one by one
Progress = Callable[[int, int], None]
"""Called with how many files were hashed, and of how many."""


@dataclass(frozen=True)
class Bound:
    """A folder that a manifest binds together.

    Attributes:
        folder: where it lies.
        manifest: what it must hold.
        right: the files that are what it lists.
    """

    folder: Path
    manifest: Manifest
    right: frozenset[str]

    def holds(self, name: str) -> bool:
        """Whether a file is listed."""
        return name in self.manifest.files

    def read(self, name: str, most: int = TEXT) -> bytes:
        """The bytes of a listed file, compared once more: what is parsed is what was hashed.

        Raises:
            Broken: it is not listed, or not what is listed, or larger than ``most``.
        """
        if name not in self.right:
            raise Broken(f"{name} is {'not what the manifest lists' if self.holds(name) else 'not listed'}: it is not read")
        content = read(self.folder / name, most)
        self.manifest.check(name, content)
        return content

    def json(self, name: str) -> dict[str, Any]:
        """The JSON object in a listed file. Raises Broken as ``read``, or where it is none."""
        return parsed(self.read(name), name)

    def yaml(self, name: str) -> dict[str, Any]:
        """The mapping in a listed file. Raises Broken as ``read``, or where it is none."""
        return settings(self.read(name), name)


def bind(folder: Path, digest: str | None, findings: Findings, progress: Progress) -> Bound | None:
    """Read a folder's manifest and hash every file that it lists; None: there is none to go by.

    Args:
        digest: that the folder must have; None: nobody said.
        findings: takes what was seen.
    """
    try:
        manifest = Manifest.read(read(folder / NAME))
    except Broken as error:
        findings.problem("manifest", str(error), "nothing binds these files together, so none of them was looked at")
        return None
    findings.ok("manifest", f"its own seal fits; it lists {len(manifest.files)} files")
    _compare(manifest, digest, findings)
    right = _hash(folder, manifest, findings, progress)
    with findings.looking("nothing else"):
        inventory = Inventory.of(folder)
        extra = sorted({*inventory.files, *inventory.others} - {NAME, *manifest.files})
        extra = [name for name in extra if name not in BESIDE]
        left = [name for name in extra if name in (LOCK, SWAPPING) or name.startswith((f"{CHECKPOINTS}/", *STAGED))]
        if left:
            findings.note("nothing else", f"left over from when it ran: {_some(left)}", "delete it")
        extra = [name for name in extra if name not in left]
        kinds = [f"{name}{f' ({inventory.others[name]})' if name in inventory.others else ''}" for name in extra]
        words = f"not listed, so no part of it, and nothing vouches for them: {_some(kinds)}"
        findings.compare("nothing else", not extra, "nothing lies beside them", words)
    return Bound(folder, manifest, frozenset(right))


def _compare(manifest: Manifest, digest: str | None, findings: Findings) -> None:
    if digest is None:
        findings.note(
            "digest",
            f"{manifest.digest}, compared with nothing",
            "give digest=sha256:... as it was printed and kept elsewhere; a file that was rewritten together with its list "
            "shows there alone",
        )
    elif digest == manifest.digest:
        findings.ok("digest", f"{digest}, as it was kept elsewhere")
    else:
        findings.problem(
            "digest", f"{manifest.digest} here, and {digest} was to be compared: this is another folder, or a rewritten one"
        )


def _hash(folder: Path, manifest: Manifest, findings: Findings, progress: Progress) -> set[str]:
    right, wrong = set(), []
    for done, (name, listed) in enumerate(manifest.files.items()):
        progress(done, len(manifest.files))
        try:
            digest = file_sha256(_inside(folder, name))
            if digest != listed:
                raise Broken(f"{name} has other bytes: sha256 {digest[:16]}..., listed {listed[:16]}...")
            right.add(name)
        except Broken as error:
            wrong.append(str(error) if str(error).startswith(name) else f"{name}: {error}")
    for line in wrong[:SHOWN]:
        findings.problem("files", line)
    if len(wrong) > SHOWN:
        findings.problem("files", f"and {len(wrong) - SHOWN} more of {len(manifest.files)}")
    if not wrong:
        findings.ok("files", f"all {len(right)} have the bytes that are listed (sha256)")
    return right


def _inside(folder: Path, name: str) -> Path:
    """Where a listed file lies; the folders on the way are folders, and no links to others.

    Raises:
        Broken: one of them is a link.
    """
    path = folder
    for part in name.split("/")[:-1]:
        path /= part
        if path.is_symlink():
            raise Broken(f"{name} lies behind {path.name}, which is a link: it is not followed")
    return folder / name


def _some(names: list[str]) -> str:
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{', '.join(names[:SHOWN])}{more}"
