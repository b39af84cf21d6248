// A parcel in words: its properties and its history.
import { ask } from "./requests";
import type { Feature } from "./parcels";

interface Change {
  changeType: string;
  changedAt: string;
  changedFields?: string[];
}

const LEFT_OUT = new Set(["key", "use", "age"]);

function element(name: string, text = "", ...inside: Node[]): HTMLElement {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...inside);
  return made;
}

function listed(entries: [name: string, value: unknown][]): HTMLElement {
  const list = element("dl");
  for (const [name, value] of entries) list.append(element("dt", name), element("dd", String(value)));
  return list;
}

/** What a person looks for first, in the page's words. */
function first(told: Feature["properties"], texts: Record<string, string>): [name: string, value: unknown][] {
  const language = document.documentElement.lang;
  const where = [told.mahalleAd, told.ilceAd, told.ilAd].filter(Boolean).join(", ");
  const size = typeof told.alan === "number" ? told.alan.toLocaleString(language) : told.alan;
  // Swedes write times as the pages do: the year first.
  const at = told.fetchedAt ? new Date(String(told.fetchedAt)).toLocaleString("sv", { timeZone: texts.zone }) : "";
  const entries: [string, unknown][] = [
    [texts.place ?? "", where],
    [texts.use ?? "", told.nitelik],
    [texts.square_metres ?? "", size],
    [texts.told ?? "", at],
  ];
  return entries.filter(([, value]) => value);
}

export async function show(
  place: HTMLElement,
  parcel: Feature,
  texts: Record<string, string>,
  close: () => void,
): Promise<void> {
  const key = String(parcel.properties.key);
  const told = Object.entries(parcel.properties).filter(
    ([name, value]) => !LEFT_OUT.has(name) && value !== null && value !== "",
  );
  const all = element("details", "", element("summary", texts.all_of_it ?? ""), listed(told));
  const away = element("button", "×") as HTMLButtonElement;
  away.type = "button";
  away.className = "second";
  away.setAttribute("aria-label", texts.close ?? "");
  away.addEventListener("click", close);
  place.replaceChildren(element("header", "", element("h2", key), away), listed(first(parcel.properties, texts)), all);
  place.hidden = false;
  const path = `/api/v1/parcels/${encodeURIComponent(key)}`;
  const { history } = await ask<{ history: Change[] }>(`${path}/history`);
  const changes = history.map((one) => {
    const fields = one.changedFields?.join(", ") ?? "";
    const kind = texts[one.changeType] ?? one.changeType;
    return element("li", `${one.changedAt.slice(0, 16).replace("T", " ")} · ${kind}${fields && `: ${fields}`}`);
  });
  const link = element("a", texts.as_json ?? "JSON") as HTMLAnchorElement;
  link.href = path;
  place.append(element("h3", texts.history ?? ""), element("ol", "", ...changes), element("p", "", link));
}
