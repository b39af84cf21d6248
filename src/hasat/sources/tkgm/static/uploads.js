// Sends forms with a file and shows errors next to them, so that the page and its values stay; without
// this script the browser sends them.
"use strict";

for (const form of document.querySelectorAll("form[data-upload]")) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form).catch((error) => show(form, "error", error.message));
  });
}

async function send(form) {
  const texts = JSON.parse(form.dataset.texts);
  const button = form.querySelector("button");
  // Before the button is disabled; disabled fields are not part of the form.
  const body = new FormData(form);
  button.disabled = true;
  show(form, "active", `${texts.sending} …`);
  try {
    const headers = { Accept: "application/json", "Accept-Language": document.documentElement.lang };
    const response = await fetch(form.getAttribute("action"), { method: "POST", body, headers });
    if (!response.ok) throw new Error(await problem(response, texts));
    if (response.redirected) location.assign(response.url);
    else await download(form, response, texts);
  } catch (error) {
    throw error instanceof TypeError ? new Error(texts.failed) : error;
  } finally {
    button.disabled = false;
  }
}

async function problem(response, texts) {
  try {
    const body = await response.json();
    return [body.detail, body.remedy].filter(Boolean).join(" ");
  } catch {
    return texts.failed;
  }
}

// Offer the file of a response, with its counts.
async function download(form, response, texts) {
  const summary = JSON.parse(response.headers.get("X-List-Summary") ?? "{}");
  const name = decodeURIComponent(/filename\*=UTF-8''([^;]+)/.exec(response.headers.get("Content-Disposition"))?.[1] ?? "parcels");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.textContent = texts.download.replace("{name}", name);
  const counts = ["rows", "found", "notFound", "unanswered"]
    .filter((one) => summary[one] || one === "rows" || one === "found")
    .map((one) => texts[one].replace(`{${one}}`, Number(summary[one]).toLocaleString(document.documentElement.lang)));
  show(form, summary.unanswered ? "warning" : "ok", link, document.createElement("br"), counts.join(" · "));
  link.click();
}

function show(form, kind, ...parts) {
  const place = form.querySelector(".notice");
  place.className = `notice ${kind}`;
  place.replaceChildren(...parts);
  place.hidden = false;
}
