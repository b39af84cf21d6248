// Uploads a list of customers and shows the progress; without this script the form downloads the
// result without it.
"use strict";

const form = document.querySelector("form[data-script][enctype]");
const texts = JSON.parse(form.dataset.texts);
const status = document.getElementById("list-result");
const locale = document.documentElement.lang;
const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
const count = (number) => number.toLocaleString(locale);
let address = null;

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  showProgress(texts.uploading, 0);
  upload(new FormData(form)).then(showResult, (error) => showError(error.message)).finally(() => {
    button.disabled = false;
  });
});

// Send the form and resolve to the summary and the file; the response has a line for each step.
function upload(data) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const pieces = [];
    let summary = null;
    let seen = 0;
    const read = (text) => {
      for (let end = text.indexOf("\n", seen); end >= 0; end = text.indexOf("\n", seen)) {
        const step = JSON.parse(text.slice(seen, end));
        seen = end + 1;
        if (step.progress) showProgress(step.progress.note, step.progress.done / (step.progress.total || 1));
        else if (step.summary) summary = step.summary;
        else if (step.data) pieces.push(Uint8Array.from(atob(step.data), (one) => one.charCodeAt(0)));
        else if (step.error) reject(new Error(sentence(step.error)));
      }
    };
    request.upload.onprogress = (event) => showProgress(texts.uploading, event.loaded / (event.total || 1));
    request.onprogress = () => { if (request.status === 200) read(request.responseText); };
    request.onerror = () => reject(new Error(texts.failed));
    request.onload = () => {
      if (request.status !== 200) return reject(new Error(problem(request.responseText)));
      read(request.responseText);
      const size = pieces.reduce((sum, one) => sum + one.length, 0);
      if (!summary || size !== summary.file.size) return reject(new Error(texts.failed));
      resolve({ summary, blob: new Blob(pieces, { type: summary.file.mediaType }) });
    };
    request.open("POST", form.getAttribute("action"));
    request.setRequestHeader("Accept", "application/x-ndjson");
    request.setRequestHeader("Accept-Language", locale);
    request.send(data);
  });
}

const sentence = (error) => [error.detail, error.remedy].filter(Boolean).join(" ");

function problem(text) {
  try {
    return sentence(JSON.parse(text));
  } catch {
    return texts.failed;
  }
}

function showProgress(note, share) {
  let bar = status.querySelector("progress");
  if (!bar) {
    bar = document.createElement("progress");
    bar.max = 1;
    const label = document.createElement("span");
    label.className = "muted";
    replace("notice active", bar, " ", label);
  }
  bar.value = share;
  status.querySelector("span").textContent = note;
}

function showResult({ summary, blob }) {
  if (address) URL.revokeObjectURL(address);
  address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = summary.file.name;
  link.textContent = fill(texts.download, { name: summary.file.name });
  const facts = [
    fill(texts.rows, { count: count(summary.rows) }),
    `e-Fatura ${count(summary.registered)}`,
    `e-Arşiv ${count(summary.notRegistered)}`,
    fill(texts.malformed, { count: count(summary.malformed) }),
    fill(texts.empty, { count: count(summary.empty) }),
    fill(texts.column, { name: summary.column }),
  ];
  if (summary.sheet) facts.push(fill(texts.sheet, { name: summary.sheet }));
  if (summary.otherSheets.length) facts.push(fill(texts.others, { names: summary.otherSheets.join(", ") }));
  const line = document.createElement("p");
  line.className = "muted";
  line.textContent = facts.join(" · ");
  replace("notice ok", link, line);
  link.click();
}

function showError(text) {
  replace("notice error", text);
}

function replace(name, ...parts) {
  status.className = name;
  status.replaceChildren(...parts);
  status.hidden = false;
}
