"use strict";
// Tables sort by a click on a header, once more the other way round. A column of numbers sorts by size, any other as words
// in which numbers count; what is missing comes last either way. Without this script a table is as it was written.
const NUMBER = /^[≥≤<>~]?\s*([-+]?[\d,]*\.?\d+(?:e[-+]?\d+)?)(?=$|[\s%–])/i;
const MISSING = ["", "-"];
const words = new Intl.Collator(undefined, { numeric: true });

function sort(table, column, down) {
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, text: row.cells[column].textContent.trim() }));
  const there = rows.filter(({ text }) => !MISSING.includes(text));
  const numbers = there.every(({ text }) => NUMBER.test(text));
  const size = ({ text }) => Number(NUMBER.exec(text)[1].replaceAll(",", ""));
  const order = numbers ? (a, b) => size(a) - size(b) : (a, b) => words.compare(a.text, b.text);
  there.sort((a, b) => (down ? order(b, a) : order(a, b)));
  const missing = rows.filter(({ text }) => MISSING.includes(text));
  table.tBodies[0].append(...[...there, ...missing].map(({ row }) => row));
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((head, column, heads) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(table, column, down);
    });
  });
}
