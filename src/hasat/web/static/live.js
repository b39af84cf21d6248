// Keeps a page up to date: by a stream of its changing parts, else by asking for the page again,
// seldom while nobody looks. Without this script the page is right as of when it was loaded.
"use strict";

const AT_FIRST = 1000;
const SOON = 5000;
const PATIENCE = 15000;
const SELDOM = 60000;
const root = document.querySelector("main[data-live]");
let stream = null;
let timer = null;
let failures = 0;
let heard = false;

// Put the parts marked data-live into place where they differ; focus stays where it was.
function show(html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  for (const part of fresh.content.querySelectorAll("[data-live][id]")) {
    const old = document.getElementById(part.id);
    if (!old || old.isEqualNode(part)) continue;
    if (old.querySelector("input:focus, select:focus, textarea:focus")) continue;
    const opened = [...old.querySelectorAll("details")].map((one) => one.open);
    part.querySelectorAll("details").forEach((one, n) => { one.open = opened[n] ?? one.open; });
    const focused = old.contains(document.activeElement) ? sign(document.activeElement) : null;
    const across = old.querySelector(".scroll") ? old.querySelector(".scroll").scrollLeft : 0;
    old.replaceWith(part);
    if (across && part.querySelector(".scroll")) part.querySelector(".scroll").scrollLeft = across;
    if (focused) {
      const again = [...part.querySelectorAll("a, button")].find((one) => sign(one) === focused);
      if (again) again.focus({ preventScroll: true });
    }
  }
  root.dispatchEvent(new CustomEvent("hasat:shown", { bubbles: true }));
}

function sign(element) {
  const form = element.closest("form");
  return [element.tagName, element.getAttribute("href"), form && form.getAttribute("action"),
    element.textContent.trim()].join("|");
}

function open() {
  if (stream || !window.EventSource) return;
  stream = new EventSource("/live?at=" + encodeURIComponent(root.dataset.live));
  // The first event comes at once, unless something on the way holds it back.
  later(PATIENCE);
  stream.onmessage = (event) => {
    failures = 0;
    heard = true;
    clearTimeout(timer);
    show(JSON.parse(event.data));
  };
  stream.onerror = () => {
    failures += 1;
    // A server that was away comes back; one that refuses does not.
    if (failures > 3 || stream.readyState === EventSource.CLOSED) {
      close();
      later(SOON);
    }
  };
}

function close() {
  if (stream) stream.close();
  stream = null;
  heard = false;
}

function later(wait) {
  clearTimeout(timer);
  timer = setTimeout(ask, wait);
}

async function ask() {
  try {
    const answer = await fetch(root.dataset.live, { headers: { Accept: "text/html" } });
    if (answer.ok && !answer.redirected) show(await answer.text());
  } catch {
    // Away: the next time is soon enough.
  }
  if (!heard) later(document.hidden ? SELDOM : SOON);
}

function look() {
  clearTimeout(timer);
  failures = 0;
  if (document.hidden) {
    close();
    later(SELDOM);
  } else {
    open();
    if (!stream) ask();
  }
}

// On a phone the navigation is a row that scrolls.
const here = document.querySelector("nav [aria-current]");
if (here) here.scrollIntoView({ block: "nearest", inline: "center" });

// Islands are large: they come when the page has been seen. Two frames on, it has.
function islands() {
  const scripts = [...document.querySelectorAll("[data-script]")].map((one) => one.dataset.script);
  for (const script of new Set(scripts)) import(script);
}
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(islands)));

if (root) {
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && look());
  // The page is fresh; and who only passes through needs no stream.
  if (document.hidden) look();
  else timer = setTimeout(look, AT_FIRST);
}
