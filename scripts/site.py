"""Build the site of documentation: make docs.

    python scripts/site.py [FOLDER]

writes HTML into FOLDER (default: build/site). Any warning is an error, such as a link to a page or
heading that does not exist. Pages outside of docs/ become pages of the site.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Pages that lie elsewhere -> their names on the site.
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "agt/README.md": "core.md",
}
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def page_on_site(target: Path) -> Path | None:
    """Return where a file of the repository lies on the site; None: it is not on the site."""
    outside = OUTSIDE.get(target.as_posix())
    if outside is not None:
        return Path(outside)
    return target.relative_to("docs") if target.is_relative_to("docs") else None


def with_links_of_site(text: str, source: Path, page: Path) -> str:
    """Return a page whose links lead to pages of the site; other links become plain text.

    Args:
        text: the page, in Markdown.
        source: the page's file, relative to the repository.
        page: the page's file, relative to the site.
    """

    def rewritten(link: re.Match[str]) -> str:
        """Return the end of a link, ``](FILE#HEADING)``, as it is on the site."""
        path = link[1]
        heading = link[2] or ""
        target = (ROOT / source.parent / path).resolve().relative_to(ROOT)
        found = page_on_site(target)
        if found is None:
            return f"] (`{target}`)"
        return f"]({'../' * len(page.parent.parts)}{found.as_posix()}{heading})"

    return _LINK.sub(rewritten, text)


def assemble(folder: Path) -> None:
    """Copy docs/ and the pages outside of it into a folder, with links of the site."""
    shutil.copytree(ROOT / "docs", folder, dirs_exist_ok=True)
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in OUTSIDE)]
    for path in pages:
        source = path.relative_to(ROOT)
        page = page_on_site(source)
        assert page is not None
        text = path.read_text(encoding="utf-8")
        (folder / page).write_text(with_links_of_site(text, source, page), encoding="utf-8")


def main(output: Path) -> int:
    """Build the site, and return Sphinx's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        assemble(Path(folder))
        command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q"]
        code = subprocess.run([*command, "-b", "html", folder, str(output)]).returncode
    if not code:
        print(f"site: {output / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"))
