// Colours of the parcels on the map.
import type { ExpressionSpecification } from "maplibre-gl";

export type Colouring = "use" | "age";

export type Feature = GeoJSON.Feature<GeoJSON.Geometry | null, Record<string, unknown>>;

const DAY = 86_400_000;

// The land use is free text; the first kind whose pattern matches is used.
const USES: [name: string, colour: string, pattern: RegExp][] = [
  ["built", "#b5562f", /apart|bina|ev\b|evi\b|mesken|kargir|beton|iş ?yeri|dükkan|fabrika|depo|okul|cami/],
  ["garden", "#6f9e3c", /bahçe|bağ\b|bağı\b|zeytin|fındık|meyve|narenciye|sera/],
  ["field", "#d2a93a", /tarla|ekilebilir/],
  ["green", "#2f7d55", /orman|mera|çayır|park|ağaç|koru/],
  ["plot", "#8173b8", /arsa/],
];
const OTHER = "#8a8f86";

// Days since a parcel was updated, and the colour from there on.
const AGES: [days: number, colour: string][] = [
  [0, "#2f7d55"],
  [7, "#8fb339"],
  [30, "#e0b63c"],
  [180, "#cf7a34"],
  [365, "#9c3b34"],
];

/** Return the entries of the legend: names of land uses, or days. */
export function legend(by: Colouring): [name: string, colour: string][] {
  if (by === "age") return AGES.map(([days, colour]) => [String(days), colour]);
  return [...USES.map(([name, colour]): [string, string] => [name, colour]), ["other", OTHER]];
}

/** Add the properties that the colours depend on. */
export function prepare(feature: Feature, now: number): Feature {
  const text = String(feature.properties.nitelik ?? "").toLocaleLowerCase("tr");
  const use = USES.find(([, , pattern]) => pattern.test(text))?.[0] ?? "other";
  const age = (now - Date.parse(String(feature.properties.fetchedAt))) / DAY;
  return { ...feature, properties: { ...feature.properties, key: feature.id, use, age } };
}

export function colours(by: Colouring): ExpressionSpecification {
  if (by === "use") {
    const pairs = USES.flatMap(([name, colour]) => [name, colour]);
    return ["match", ["get", "use"], ...pairs, OTHER] as unknown as ExpressionSpecification;
  }
  const [first, ...later] = AGES;
  const steps = later.flatMap(([days, colour]) => [days, colour]);
  return ["step", ["get", "age"], first?.[1] ?? OTHER, ...steps] as unknown as ExpressionSpecification;
}

/** Return the points of the numbers: inside the parcel, in the widest stretch through its middle. */
export function labels(parcels: Feature[]): GeoJSON.FeatureCollection {
  const features = parcels.flatMap((one): GeoJSON.Feature[] => {
    const { adaNo, parselNo } = one.properties;
    const at = labelPoint(one.geometry);
    if (!at || !parselNo) return [];
    const label = `${adaNo}/${parselNo}`;
    return [{ type: "Feature", properties: { label }, geometry: { type: "Point", coordinates: at } }];
  });
  return { type: "FeatureCollection", features };
}

/** Find the middle of the widest stretch inside an outline, half way between north and south. */
function labelPoint(outline: GeoJSON.Geometry | null): [number, number] | null {
  const polygons =
    outline?.type === "Polygon" ? [outline.coordinates] : outline?.type === "MultiPolygon" ? outline.coordinates : [];
  let best: [number, number] | null = null;
  let widest = 0;
  for (const rings of polygons) {
    const lats = (rings[0] ?? []).map((corner) => corner[1] ?? 0);
    const lat = (Math.min(...lats) + Math.max(...lats)) / 2;
    const crossings = rings.flatMap((ring) => crossingsAt(ring, lat)).sort((a, b) => a - b);
    for (let n = 0; n + 1 < crossings.length; n += 2) {
      const [from, to] = [crossings[n] ?? 0, crossings[n + 1] ?? 0];
      if (to - from > widest) [widest, best] = [to - from, [(from + to) / 2, lat]];
    }
  }
  return best;
}

/** Return the longitudes at which a ring crosses a latitude. */
function crossingsAt(ring: GeoJSON.Position[], lat: number): number[] {
  return ring.slice(1).flatMap((to, n) => {
    const [x1 = 0, y1 = 0] = ring[n] ?? [];
    const [x2 = 0, y2 = 0] = to;
    return y1 > lat === y2 > lat ? [] : [x1 + ((lat - y1) / (y2 - y1)) * (x2 - x1)];
  });
}
