"""Look at pages as a browser shows them: pictures at a desktop's and a phone's width, and what a
page must keep there.

    python scripts/look.py outputs                     every page below a folder, checked
    python scripts/look.py outputs --pictures shots    and a picture of each at every width

A page may not be wider than the window, must show every picture, sort every table by every column,
both ways, and ask nothing of any other address. Needs chromium or chrome on PATH. Ends with 1 if a
page fails.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from html import escape, unescape
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PAGE = "report.html"
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844), "narrow": (360, 740)}
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
TEST = """
<script>
{  // a scope of its own: the page has names too
const number = (text) => Number(text.replace(/[[].*|[,≥≤<>~ ]|–.*|%| [a-z].*/g, ""));
const missing = (text) => text === "" || text === "-";
const words = new Intl.Collator(undefined, { numeric: true }).compare;

function ordered(texts, way) {
  const there = texts.filter((text) => !missing(text)), numbers = there.map(number);
  const size = (a, b) => numbers[a] - numbers[b], name = (a, b) => words(there[a], there[b]);
  const order = numbers.some(Number.isNaN) ? name : size, sign = way === "ascending" ? 1 : -1;
  const sorted = there.every((_, at) => !at || sign * order(at - 1, at) <= 0);
  return sorted && texts.slice(there.length).every(missing);
}

function unsorted() {
  const found = [];
  for (const table of document.querySelectorAll("table")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = head.querySelector("button");
      for (const way of button ? ["ascending", "descending"] : []) {
        button.click();
        const texts = [...table.tBodies[0].rows].map((row) => row.cells[column].textContent.trim());
        const said = head.getAttribute("aria-sort");
        if (!ordered(texts, way) || said !== way) found.push(`${head.textContent}: ${texts}`);
      }
    });
  }
  return found;
}

addEventListener("load", () => {
  const sources = [...document.querySelectorAll("[src], link")].map((one) => one.src || one.href);
  parent.document.documentElement.dataset[window.name] = JSON.stringify({
    window: innerWidth,
    page: document.documentElement.scrollWidth,
    tables: document.querySelectorAll("table").length,
    pictures: document.images.length,
    broken: [...document.images].filter((one) => !one.naturalWidth)
      .map((one) => one.alt || one.src),
    foreign: sources.filter((url) => !/^(data|file):/.test(url)),
    unsorted: unsorted(),
  });
});
}
</script>
"""
FRAME = (
    '<iframe name="{name}" width="{width}" height="{height}" frameborder="0" onload="{onload}" '
    'srcdoc="{page}"></iframe>'
)
OWN = (
    "document.documentElement.dataset.own = "
    "JSON.stringify(!!this.contentDocument.querySelector('th button'))"
)


def browser() -> str | None:
    """The first browser on PATH; None: there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def chromium(page: Path, width: int, height: int, *arguments: str) -> str:
    """What a headless browser prints for a page in a window of that size."""
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command = [
            str(browser()),
            *flags,
            "--timeout=60000",
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            *arguments,
            page.resolve().as_uri(),
        ]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True
        ).stdout


def measure(page: Path) -> dict[str, Any]:
    """What TEST finds in a page at each width, and whether the page's own script runs under its own
    policy.

    TEST runs in copies without a policy, each in a frame of its own: a window itself is never as
    narrow as a phone's.
    """
    text = page.read_text(encoding="utf-8").replace(
        "<head>", f'<head><base href="{page.resolve().parent.as_uri()}/">'
    )
    tried = POLICY.sub("", text).replace('loading="lazy"', "").replace("</body>", f"{TEST}</body>")
    frames = [
        FRAME.format(name=name, width=w, height=h, onload="", page=escape(tried))
        for name, (w, h) in WIDTHS.items()
    ]
    frames.append(FRAME.format(name="own", width=1280, height=900, onload=OWN, page=escape(text)))
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "frames.html"
        whole.write_text(f"<!doctype html>{''.join(frames)}", encoding="utf-8")
        shown = chromium(whole, 1400, 1000, "--dump-dom")
    found = {
        name: re.search(rf'<html[^>]* data-{name}="([^"]*)"', shown) for name in (*WIDTHS, "own")
    }
    if not all(found.values()):
        raise ValueError(f"{page}: the test did not run to its end")
    return {name: json.loads(unescape(value[1])) for name, value in found.items() if value}


def faults(page: Path) -> list[str]:
    """What is wrong with a page, a line each; empty: nothing.

    A fault is there twice: a busy browser may drop a picture.
    """
    return _faults(measure(page)) and _faults(measure(page))


def _faults(found: dict[str, Any]) -> list[str]:
    lines = []
    for name, (width, _) in WIDTHS.items():
        seen = found[name]
        if max(seen["page"], seen["window"]) > width:
            lines.append(f"{name}: the page is {seen['page']} wide, the window {seen['window']}")
        lines += [
            f"{name}: {word}: {seen[word]}"
            for word in ("broken", "unsorted", "foreign")
            if seen[word]
        ]
    if found["desktop"]["tables"] and not found["own"]:
        lines.append("its own policy keeps its own script from running")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", type=Path, help="a folder for pictures")
    arguments = parser.parse_args()
    if browser() is None:
        print(f"needs one of {', '.join(BROWSERS)} on PATH", file=sys.stderr)
        return 1
    pages = list(arguments.folder.rglob(PAGE))
    failed = 0
    for page in sorted(pages):
        lines = faults(page)
        failed += bool(lines)
        print("\n  ".join([f"{page}: {'ok' if not lines else 'FAILS'}", *lines]))
        for name, (width, height) in WIDTHS.items() if arguments.pictures else ():
            arguments.pictures.mkdir(parents=True, exist_ok=True)
            place = "_".join(page.relative_to(arguments.folder).with_suffix("").parts)
            chromium(
                page,
                width,
                height,
                f"--screenshot={(arguments.pictures / f'{place}_{name}.png').resolve()}",
            )
    print(f"{len(pages)} pages, {failed} with faults")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
