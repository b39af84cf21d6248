// Small conveniences: copy buttons, selects that submit their form, menus that close, and forms that
// ask for a number before they do something large. Everything works without this script, too.
"use strict";

document.documentElement.classList.add("scripts");

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(event.target) || event.target.closest("a")) menu.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.querySelector("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit();
});

// Enter in the field of an approval does not submit the button in front of it, which rejects.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("[data-confirm]")) {
    event.preventDefault();
    const button = event.target.form.querySelector("[data-confirmed]");
    if (!button.disabled) button.focus();
  }
});

document.addEventListener("input", (event) => {
  if (event.target.matches("[data-confirm]")) check(event.target);
});

function check(field) {
  const typed = field.value.replace(/[\s.,]/g, "");
  field.form.querySelector("[data-confirmed]").disabled = typed !== field.dataset.confirm;
}

// Live updates replace the form.
function prepare() {
  document.querySelectorAll("[data-confirm]").forEach(check);
}
prepare();
document.addEventListener("hasat:updated", prepare);

async function copy(button) {
  const text = button.dataset.copy || location.href;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Only pages over TLS and on this machine may use the clipboard directly.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const note = document.createElement("span");
  note.className = "copied";
  note.setAttribute("role", "status");
  note.textContent = button.dataset.copied;
  button.append(note);
  setTimeout(() => note.remove(), 1500);
}
