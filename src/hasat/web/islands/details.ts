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

export async function show(place: HTMLElement, parcel: Feature, texts: Record<string, string>): Promise<void> {
  const key = String(parcel.properties.key);
  const list = element("dl");
  for (const [name, value] of Object.entries(parcel.properties)) {
    if (LEFT_OUT.has(name) || value === null || value === "") continue;
    list.append(element("dt", name), element("dd", String(value)));
  }
  place.replaceChildren(element("h2", key), list);
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
