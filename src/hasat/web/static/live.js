// Keeps a page up to date by a stream of its live parts, or by polling where streams do not work.
// Hidden pages poll rarely. Without this script a page shows the state at load time.
"use strict";

const FIRST_MS = 1000;
const POLL_MS = 5000;
const STREAM_TIMEOUT_MS = 15000;
const HIDDEN_POLL_MS = 60000;
const root = document.querySelector("main[data-live]");
let stream = null;
let timer = null;
let failures = 0;
let streaming = false;

// Replace the parts marked data-live that differ; focus, scrolling and open details are preserved.
function update(html) {
  const parsed = document.createElement("template");
  parsed.innerHTML = html;
  for (const part of parsed.content.querySelectorAll("[data-live][id]")) {
    const old = document.getElementById(part.id);
    if (!old || old.isEqualNode(part)) continue;
    if (old.querySelector("input:focus, select:focus, textarea:focus")) continue;
    if ([...old.querySelectorAll("input, textarea")].some((one) => one.value !== one.defaultValue)) continue;
    const openStates = [...old.querySelectorAll("details")].map((one) => one.open);
    part.querySelectorAll("details").forEach((one, n) => { one.open = openStates[n] ?? one.open; });
    const focused = old.contains(document.activeElement) ? describe(document.activeElement) : null;
    const scrolled = old.querySelector(".scroll") ? old.querySelector(".scroll").scrollLeft : 0;
    old.replaceWith(part);
    if (scrolled && part.querySelector(".scroll")) part.querySelector(".scroll").scrollLeft = scrolled;
    if (focused) {
      const again = [...part.querySelectorAll("a, button")].find((one) => describe(one) === focused);
      if (again) again.focus({ preventScroll: true });
    }
  }
  root.dispatchEvent(new CustomEvent("hasat:updated", { bubbles: true }));
}

// Identify a link or button, to find it again after an update.
function describe(element) {
  const form = element.closest("form");
  return [element.tagName, element.getAttribute("href"), form && form.getAttribute("action"),
    element.textContent.trim()].join("|");
}

function open() {
  if (stream || !window.EventSource) return;
  stream = new EventSource("/live?at=" + encodeURIComponent(root.dataset.live));
  // The first event comes at once, unless a proxy buffers the stream.
  schedulePoll(STREAM_TIMEOUT_MS);
  stream.onmessage = (event) => {
    failures = 0;
    streaming = true;
    clearTimeout(timer);
    update(JSON.parse(event.data));
  };
  stream.onerror = () => {
    failures += 1;
    // Stop after repeated failures or when the server refuses the stream.
    if (failures > 3 || stream.readyState === EventSource.CLOSED) {
      close();
      schedulePoll(POLL_MS);
    }
  };
}

function close() {
  if (stream) stream.close();
  stream = null;
  streaming = false;
}

function schedulePoll(wait) {
  clearTimeout(timer);
  timer = setTimeout(poll, wait);
}

async function poll() {
  try {
    const response = await fetch(root.dataset.live, { headers: { Accept: "text/html" } });
    if (response.ok && !response.redirected) update(await response.text());
  } catch {
    // The server is unreachable; the next poll tries again.
  }
  if (!streaming) schedulePoll(document.hidden ? HIDDEN_POLL_MS : POLL_MS);
}

function adjust() {
  clearTimeout(timer);
  failures = 0;
  if (document.hidden) {
    close();
    schedulePoll(HIDDEN_POLL_MS);
  } else {
    open();
    if (!stream) poll();
  }
}

// On phones the navigation is a row that scrolls.
const current = document.querySelector("nav [aria-current]");
if (current) current.scrollIntoView({ block: "nearest", inline: "center" });

// Large scripts load after the page is painted, two frames later.
function loadScripts() {
  const scripts = [...document.querySelectorAll("[data-script]")].map((one) => one.dataset.script);
  for (const script of new Set(scripts)) import(script);
}
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(loadScripts)));

if (root) {
  document.addEventListener("visibilitychange", adjust);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && adjust());
  // A page that was just loaded is current; a short visit needs no stream.
  if (document.hidden) adjust();
  else timer = setTimeout(adjust, FIRST_MS);
}
