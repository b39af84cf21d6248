// Keys, sortable tables, questions before what cannot be undone, and parts that stay folded.
// Everything works without this script, too.
"use strict";

// "/" goes to the search, "?" shows the keys, "g" and a letter goes to a page, Escape leaves a field.
const PLACES = { o: "/", q: "/quota", r: "/runs", c: "/changes", d: "/delivery", s: "/settings" };
let leader = 0;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const field = event.target.closest("input, select, textarea, [contenteditable], dialog");
  if (field) {
    if (event.key === "Escape" && field.id === "find") field.blur();
    return;
  }
  if (event.key === "/") {
    event.preventDefault();
    const find = document.getElementById("find");
    if (find) find.select();
  } else if (event.key === "g") {
    leader = event.timeStamp;
  } else if (event.timeStamp - leader < 1000 && PLACES[event.key]) {
    location.href = PLACES[event.key];
  }
});

// Tables of one page are sorted by a click on a heading; those with links are sorted by the server.
const orders = new Map();

function sortable(table) {
  const headings = table.tHead ? [...table.tHead.rows[0].cells] : [];
  if (!table.tBodies.length || table.tBodies[0].rows.length < 3 || table.closest(".unsorted")) return;
  headings.forEach((heading, column) => {
    if (heading.querySelector("a, button, .visually-hidden") || !heading.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => {
      const rising = heading.getAttribute("aria-sort") !== "ascending";
      orders.set(nameOf(table), [column, rising]);
      sort(table, column, rising);
    });
    heading.append(button);
  });
  const order = orders.get(nameOf(table));
  if (order) sort(table, ...order);
}

function nameOf(table) {
  const part = table.closest("[id]");
  return part ? `${part.id} ${[...part.querySelectorAll("table")].indexOf(table)}` : table;
}

function sort(table, column, rising) {
  [...table.tHead.rows[0].cells].forEach((one, place) => {
    if (place === column) one.setAttribute("aria-sort", rising ? "ascending" : "descending");
    else one.removeAttribute("aria-sort");
  });
  const isNumeric = table.tHead.rows[0].cells[column].classList.contains("number");
  const rows = [...table.tBodies[0].rows].map((row) => [valueOf(row.cells[column], isNumeric), row]);
  rows.sort(([a], [b]) => (a === b ? 0 : a === "" ? 1 : b === "" ? -1 : compare(a, b) * (rising ? 1 : -1)));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

function valueOf(cell, isNumeric) {
  const time = cell && cell.querySelector("time");
  if (time) return time.dateTime;
  const text = cell ? cell.textContent.trim() : "";
  if (!isNumeric) return text === "–" ? "" : text;
  if (cell.dataset.value) return Number(cell.dataset.value);
  const decimal = document.documentElement.lang === "tr" ? "," : ".";
  const digits = [...text].filter((one) => /[0-9-]/.test(one) || one === decimal).join("");
  return digits ? Number(digits.replace(decimal, ".")) : "";
}

function compare(a, b) {
  return typeof a === "number" ? a - b : a.localeCompare(b, document.documentElement.lang, { numeric: true });
}

// A form with a question is sent only after the answer.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.dataset.ask || form.dataset.answered) return;
  event.preventDefault();
  const dialog = document.createElement("dialog");
  const text = document.createElement("p");
  text.textContent = form.dataset.ask;
  const no = document.createElement("button");
  no.className = "second";
  no.textContent = form.dataset.no;
  const yes = document.createElement("button");
  yes.className = "danger";
  yes.textContent = event.submitter ? event.submitter.textContent : "OK";
  const actions = document.createElement("div");
  actions.className = "actions";
  actions.append(no, yes);
  dialog.append(text, actions);
  no.addEventListener("click", () => dialog.close());
  yes.addEventListener("click", () => {
    form.dataset.answered = "yes";
    form.requestSubmit(event.submitter);
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  no.focus();
});

// Parts that a reader has folded stay folded.
function restoreFolds() {
  for (const one of document.querySelectorAll("details[data-fold]")) {
    const stored = localStorage.getItem(`fold ${one.dataset.fold}`);
    if (stored) one.open = stored === "open";
    one.addEventListener("toggle", () => {
      localStorage.setItem(`fold ${one.dataset.fold}`, one.open ? "open" : "closed");
    });
  }
}

// On phones the rows of wide tables are cards: each cell has the heading of its column.
function cards(table) {
  if (!table.tHead || table.className || table.tHead.rows[0].cells.length < 4) return;
  const headings = [...table.tHead.rows[0].cells].map((one) => one.textContent.trim());
  table.className = "cards-on-phones compact";
  for (const row of table.tBodies[0] ? table.tBodies[0].rows : []) {
    [...row.cells].forEach((cell, column) => { cell.dataset.label = headings[column] || ""; });
    const title = [...row.cells].find((one) => !one.classList.contains("number"));
    if (title) title.classList.add("title");
  }
}

function prepareTables() {
  for (const table of document.querySelectorAll("main table")) {
    cards(table);
    if (!table.querySelector(".sort")) sortable(table);
  }
}

restoreFolds();
prepareTables();
document.addEventListener("hasat:updated", prepareTables);
