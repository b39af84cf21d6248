// An interactive chart of a day's usage. It replaces the static picture and legend, which show the
// same numbers without scripts.
//
//   <div data-island="chart" data-day='{"now": "...", "byHour": [...], ...}' data-zone="Europe/Istanbul"
//        data-texts='{"spent": "...", "pace": "...", "limit": "..."}'> static chart </div>
import uPlot from "uplot";

interface Day {
  now: string;
  startsAt: string;
  endsAt: string;
  limit: number | null;
  target: number;
  byHour: number[];
}

interface Texts {
  spent: string;
  pace: string;
  limit: string;
}

const HOUR = 3600;
const HEIGHT = 240;

const seconds = (text: string): number => Date.parse(text) / 1000;

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#555";
}

/** Return usage, pace to the target and limit over the hours of the day. */
function columns(day: Day): uPlot.AlignedData {
  const [from, to, now] = [seconds(day.startsAt), seconds(day.endsAt), seconds(day.now)];
  const edges = Array.from({ length: Math.ceil((to - from) / HOUR) + 1 }, (_, hour) =>
    Math.min(from + hour * HOUR, to),
  );
  const times = [...new Set([...edges, now])].sort((a, b) => a - b);
  const spent = times.map((time) => {
    if (time > now) return null;
    const hours = Math.ceil((time - from) / HOUR);
    return day.byHour.slice(0, hours).reduce((sum, one) => sum + one, 0);
  });
  if (day.limit === null) return [times, spent];
  const target = day.limit * day.target;
  const pace = times.map((time) => Math.round((target * (time - from)) / (to - from)));
  return [times, spent, pace, times.map(() => day.limit)];
}

function options(width: number, place: HTMLElement, limited: boolean): uPlot.Options {
  const texts = JSON.parse(place.dataset.texts ?? "{}") as Texts;
  const language = document.documentElement.lang;
  const number = new Intl.NumberFormat(language);
  const value = (_: uPlot, count: number | null): string => (count === null ? "" : number.format(count));
  const axis: uPlot.Axis = {
    stroke: colour("--muted"),
    grid: { stroke: colour("--border"), width: 1 },
    ticks: { stroke: colour("--border"), width: 1 },
  };
  const clock = new Intl.DateTimeFormat(language, {
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    timeZone: place.dataset.zone,
  });
  const at = (time: number): string => clock.format(new Date(time * 1000));
  const bounds: uPlot.Series[] = [
    { label: texts.pace, stroke: colour("--muted"), dash: [6, 5], width: 1.5, points: { show: false }, value },
    { label: texts.limit, stroke: colour("--error"), width: 1.5, points: { show: false }, value },
  ];
  return {
    width,
    height: HEIGHT,
    padding: [null, 24, null, null],
    series: [
      { label: "", value: (_, time) => (time === null ? "" : at(time)) },
      {
        label: texts.spent,
        stroke: colour("--accent"),
        fill: colour("--accent-soft"),
        width: 2,
        points: { show: false },
        value,
      },
      ...(limited ? bounds : []),
    ],
    axes: [
      { ...axis, values: (_, times) => times.map(at) },
      { ...axis, size: 70, values: (_, values) => values.map((one) => number.format(one)) },
    ],
  };
}

function render(place: HTMLElement): void {
  const day = JSON.parse(place.dataset.day ?? "null") as Day | null;
  if (!day) return;
  const width = Math.max(280, place.clientWidth);
  const settings = options(width, place, day.limit !== null);
  place.replaceChildren();
  const chart = new uPlot(settings, columns(day), place);
  new ResizeObserver(() => {
    if (place.clientWidth) chart.setSize({ width: place.clientWidth, height: HEIGHT });
  }).observe(place);
}

function renderAll(): void {
  // A live update restores the static chart.
  document.querySelectorAll<HTMLElement>("[data-island=chart]:not(:has(.uplot))").forEach(render);
}

addEventListener("hasat:updated", renderAll);
renderAll();
