// The details panel of a parcel: its attributes and its history.
import { fetchJson } from "./requests";
import type { Feature } from "./parcels";

interface Change {
  changeType: string;
  changedAt: string;
  changedFields?: string[];
}

const COMPUTED = new Set(["key", "use", "age"]);

function element(name: string, text = "", ...inside: (Node | string)[]): HTMLElement {
  const created = document.createElement(name);
  if (text) created.textContent = text;
  created.append(...inside);
  return created;
}

function link(text: string, address: string): HTMLElement {
  const created = element("a", text) as HTMLAnchorElement;
  created.href = address;
  return created;
}

function definitionList(entries: [name: string, value: unknown][]): HTMLElement {
  const list = element("dl");
  for (const [name, value] of entries) list.append(element("dt", name), element("dd", String(value)));
  return list;
}

/** Parse a time; the feed writes those of changes without an offset, in Turkish time. */
function parseTime(time: string): Date {
  return new Date(/(Z|[+-]\d\d:?\d\d)$/.test(time) ? time : `${time}+03:00`);
}

/** Write a time as the page does; the locale of English pages is one with dates as 2026-11-18. */
function formatTime(time: string, texts: Record<string, string>): string {
  return parseTime(time).toLocaleString(texts.locale, { timeZone: texts.zone, dateStyle: "short", timeStyle: "short" });
}

/** Return the main attributes with translated labels. */
function mainAttributes(properties: Feature["properties"], texts: Record<string, string>): [name: string, value: unknown][] {
  const language = document.documentElement.lang;
  const where = [properties.mahalleAd, properties.ilceAd, properties.ilAd].filter(Boolean).join(", ");
  const size = typeof properties.alan === "number" ? properties.alan.toLocaleString(language) : properties.alan;
  const at = properties.fetchedAt ? formatTime(String(properties.fetchedAt), texts) : "";
  const entries: [string, unknown][] = [
    [texts.place ?? "", where],
    [texts.use ?? "", properties.nitelik],
    [texts.square_metres ?? "", size],
    [texts.updated ?? "", at],
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
  const attributes = Object.entries(parcel.properties).filter(
    ([name, value]) => !COMPUTED.has(name) && value !== null && value !== "",
  );
  const all = element("details", "", element("summary", texts.all_attributes ?? ""), definitionList(attributes));
  const closeButton = element("button", "×") as HTMLButtonElement;
  closeButton.type = "button";
  closeButton.className = "second";
  closeButton.setAttribute("aria-label", texts.close ?? "");
  closeButton.addEventListener("click", close);
  place.replaceChildren(element("header", "", element("h2", key), closeButton), definitionList(mainAttributes(parcel.properties, texts)), all);
  place.hidden = false;
  const path = `/api/v1/parcels/${encodeURIComponent(key)}`;
  const { history } = await fetchJson<{ history: Change[] }>(`${path}/history`);
  const changes = history.map((one) => {
    const fields = one.changedFields?.join(", ") ?? "";
    const kind = texts[one.changeType] ?? one.changeType;
    return element("li", `${formatTime(one.changedAt, texts)} · ${kind}${fields && `: ${fields}`}`);
  });
  const record = link(texts.record ?? "", `/parcels/record?key=${encodeURIComponent(key)}`);
  const json = link(texts.as_json ?? "JSON", path);
  place.append(element("h3", texts.history ?? ""), element("ol", "", ...changes), element("p", "", record, " · ", json));
}
