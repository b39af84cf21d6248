// The map of the parcels: scans, parcels by use or age (density where they are too many), details
// on a click, and an area drawn for the form below it.
import { Map as GlMap, ScaleControl, setWorkerUrl } from "maplibre-gl";
import type { GeoJSONSource, LngLatBoundsLike, StyleSpecification } from "maplibre-gl";
import { show as showDetails } from "./details";
import { Drawing } from "./drawing";
import { colours, legend, prepared } from "./parcels";
import type { Colouring, Feature } from "./parcels";
import { ask } from "./requests";

const MOST = 5000;
const TURKEY: LngLatBoundsLike = [25.6, 35.8, 44.9, 42.2];
const NOTHING: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };
const AGAIN_MS = 3000;
const FITTING = { padding: 30, maxZoom: 17 };

interface Found extends GeoJSON.FeatureCollection {
  numberMatched: number;
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
}

/** West, south, east, north as the page writes them; the country where it does not. */
function sides(text: string | undefined): LngLatBoundsLike {
  return text ? (text.split(",").map(Number) as [number, number, number, number]) : TURKEY;
}

function style(place: HTMLElement): StyleSpecification {
  const base = place.dataset.baseMap;
  const ground = { "background-color": colour("--soft") };
  return {
    version: 8,
    sources: {
      ...(base ? { base: { type: "raster", tiles: [base], tileSize: 256, maxzoom: 19 } } : {}),
      scans: { type: "geojson", data: NOTHING },
      density: { type: "geojson", data: NOTHING },
      filling: { type: "geojson", data: NOTHING },
      parcels: { type: "geojson", data: NOTHING },
      area: { type: "geojson", data: place.dataset.area ? JSON.parse(place.dataset.area) : NOTHING },
    },
    layers: [
      { id: "ground", type: "background", paint: ground },
      ...(base ? [{ id: "base", type: "raster" as const, source: "base" }] : []),
      {
        id: "scans",
        type: "fill",
        source: "scans",
        paint: { "fill-color": colour("--busy"), "fill-opacity": 0.1 },
      },
      { id: "area", type: "fill", source: "area", paint: { "fill-color": colour("--look"), "fill-opacity": 0.15 } },
      {
        id: "density",
        type: "fill",
        source: "density",
        paint: { "fill-color": colour("--leaf"), "fill-opacity": ["+", 0.15, ["*", 0.75, ["get", "share"]]] },
      },
      {
        id: "filling",
        type: "fill",
        source: "filling",
        paint: { "fill-color": colour("--busy"), "fill-opacity": 0.45, "fill-outline-color": colour("--ink") },
      },
      {
        id: "parcels",
        type: "fill",
        source: "parcels",
        paint: { "fill-color": colours("use"), "fill-opacity": 0.65 },
      },
      {
        id: "parcel-edges",
        type: "line",
        source: "parcels",
        paint: { "line-color": colour("--ink"), "line-width": 0.6, "line-opacity": 0.6 },
      },
      {
        id: "chosen",
        type: "line",
        source: "parcels",
        filter: ["==", ["get", "key"], ""],
        paint: { "line-color": colour("--ink"), "line-width": 3 },
      },
      {
        id: "scan-edges",
        type: "line",
        source: "scans",
        paint: { "line-color": colour("--busy"), "line-width": 2, "line-dasharray": [3, 2] },
      },
      { id: "area-edges", type: "line", source: "area", paint: { "line-color": colour("--look"), "line-width": 2.5 } },
    ],
  };
}

class ParcelMap {
  private readonly map: GlMap;
  private readonly texts: Record<string, string>;
  private readonly drawing: Drawing;
  private readonly filling = document.createElement("li");
  private looks = 0;
  private shownAt = 0;

  constructor(private readonly place: HTMLElement) {
    this.texts = JSON.parse(place.dataset.texts ?? "{}") as Record<string, string>;
    this.filling.hidden = true;
    setWorkerUrl(new URL(place.dataset.worker ?? "", location.href).href);
    this.map = new GlMap({
      container: place,
      style: style(place),
      bounds: sides(place.dataset.bounds),
      fitBoundsOptions: FITTING,
      attributionControl: false,
      dragRotate: false,
      pitchWithRotate: false,
      touchPitch: false,
      trackResize: false,
      // A picture can be taken of it at any time.
      canvasContextAttributes: { preserveDrawingBuffer: true },
    });
    this.follow(place);
    this.map.touchZoomRotate.disableRotation();
    this.map.addControl(new ScaleControl({}), "bottom-left");
    this.map.getCanvas().setAttribute("aria-label", this.texts.map ?? "");
    this.drawing = new Drawing(this.map, "area", (area) => this.drawn(area));
    this.map.on("load", () => this.loaded());
    this.map.on("moveend", () => void this.look());
    this.map.on("click", (event) => {
      if (this.drawing.active) return;
      const [parcel] = this.map.queryRenderedFeatures(event.point, { layers: ["parcels"] });
      if (parcel) this.choose(parcel as unknown as Feature);
      else this.close();
    });
    addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
  }

  /** The map takes the size of its place; one without any, as while the page is printed or pictured, is none. */
  private follow(place: HTMLElement): void {
    let [width, height] = [place.clientWidth, place.clientHeight];
    new ResizeObserver(() => {
      if (!place.clientWidth || !place.clientHeight) return;
      if (place.clientWidth === width && place.clientHeight === height) return;
      [width, height] = [place.clientWidth, place.clientHeight];
      this.map.resize();
    }).observe(place);
  }

  private loaded(): void {
    this.controls();
    void this.look();
    void this.coverage();
    // What the page learns by its stream, the map looks at too, though not at every word.
    addEventListener("hasat:shown", () => {
      if (document.hidden || Date.now() - this.shownAt < AGAIN_MS) return;
      void this.look();
      void this.coverage();
    });
  }

  private controls(): void {
    const on = (name: string, act: () => void): void => {
      document.querySelector<HTMLElement>(`[data-map=${name}]`)?.addEventListener("click", act);
    };
    on("in", () => this.map.zoomIn());
    on("out", () => this.map.zoomOut());
    on("everything", () => this.map.fitBounds(sides(this.place.dataset.everything), FITTING));
    on("draw", () => {
      this.close();
      if (this.drawing.active) this.drawing.drop();
      else this.drawing.begin();
      // Enter is for the area now, not for the button.
      this.map.getCanvas().focus();
      this.showDrawing();
    });
    const chosen = document.querySelector<HTMLSelectElement>("[data-map=colours]");
    chosen?.addEventListener("change", () => this.colour(chosen.value as Colouring));
    this.colour("use");
    document.querySelector<HTMLElement>("[data-map-tools]")?.removeAttribute("hidden");
  }

  private colour(by: Colouring): void {
    this.map.setPaintProperty("parcels", "fill-color", colours(by));
    const entries = legend(by).map(([name, shade]) => this.entry(shade, this.texts[`${by}_${name}`] ?? name));
    this.filling.replaceChildren(...this.entry(colour("--busy"), this.texts.filling ?? "").childNodes);
    document.querySelector("[data-map=legend]")?.replaceChildren(...entries, this.filling);
  }

  private entry(shade: string, text: string): HTMLElement {
    const entry = document.createElement("li");
    const sample = document.createElement("span");
    sample.style.background = shade;
    entry.append(sample, text);
    return entry;
  }

  /** Bring what is in view: every parcel, or how many there are where they are too many.
   *
   * What is no longer in view when it comes is dropped. */
  private async look(): Promise<void> {
    const turn = ++this.looks;
    this.shownAt = Date.now();
    const sides = this.map.getBounds();
    const within = (side: number, most: number): string => Math.max(-most, Math.min(most, side)).toFixed(5);
    const box = [
      within(sides.getWest(), 180),
      within(sides.getSouth(), 90),
      within(sides.getEast(), 180),
      within(sides.getNorth(), 90),
    ].join(",");
    try {
      const density = await ask<Found>(`/api/v1/parcels/density?bbox=${box}`);
      if (turn !== this.looks) return;
      let parcels = NOTHING;
      const many = density.numberMatched > MOST;
      if (!many) {
        const path = "/api/v1/parcels/collections/parcels/items";
        const found = await ask<Found>(`${path}?bbox=${box}&limit=${MOST}`);
        if (turn !== this.looks) return;
        const now = Date.now();
        parcels = { ...found, features: found.features.map((one) => prepared(one as Feature, now) as GeoJSON.Feature) };
      }
      this.put("parcels", parcels);
      this.put("density", many ? density : NOTHING);
      const count = density.numberMatched.toLocaleString(document.documentElement.lang);
      this.say((many ? this.texts.too_many : this.texts.in_view)?.replace("{count}", count) ?? "");
    } catch (error) {
      if (turn === this.looks) this.say((error as Error).message);
    }
  }

  /** The areas that were scanned, and what those at work were told but have not published yet. */
  private async coverage(): Promise<void> {
    const path = "/api/v1/parcels/scans";
    try {
      const scans = await ask<GeoJSON.FeatureCollection>(path);
      this.put("scans", scans);
      const open = scans.features.find((scan) => scan.properties?.finishedAt === null);
      const found = open ? await ask<GeoJSON.FeatureCollection>(`${path}/${open.id}/parcels`) : NOTHING;
      this.put("filling", found);
      this.filling.hidden = !found.features.length;
    } catch {
      // Away: the next look is soon enough.
    }
  }

  private choose(parcel: Feature): void {
    this.map.setFilter("chosen", ["==", ["get", "key"], String(parcel.properties.key)]);
    const place = document.querySelector<HTMLElement>("[data-map=details]");
    if (!place) return;
    showDetails(place, parcel, this.texts, () => this.close()).catch((error: Error) => this.say(error.message));
  }

  private close(): void {
    this.map.setFilter("chosen", ["==", ["get", "key"], ""]);
    const place = document.querySelector<HTMLElement>("[data-map=details]");
    if (place) place.hidden = true;
  }

  /** Whether an area is being drawn, on the button and where one looks: on the map. */
  private showDrawing(): void {
    const active = this.drawing.active;
    document.querySelector("[data-map=draw]")?.setAttribute("aria-pressed", String(active));
    const hint = document.querySelector("[data-map=hint]");
    if (hint) hint.textContent = active ? (this.texts.drawing ?? "") : "";
  }

  private drawn(area: string | null): void {
    this.showDrawing();
    const field = document.querySelector<HTMLInputElement>("input[name=area]");
    if (area === null || !field) return;
    field.value = area;
    // The server says what it would cost, as it does without scripts.
    field.form?.requestSubmit();
  }

  private put(source: string, data: GeoJSON.FeatureCollection): void {
    this.map.getSource<GeoJSONSource>(source)?.setData(data);
  }

  private say(text: string): void {
    const line = document.querySelector("[data-map=told]");
    if (line) line.textContent = text;
  }
}

const place = document.querySelector<HTMLElement>("[data-island=map]");
const frame = document.querySelector<HTMLElement>("[data-map=frame]");
const instead = document.querySelector<HTMLElement>("[data-map=instead]");
if (place && frame && instead) {
  try {
    new ParcelMap(place);
  } catch {
    // No WebGL: the tables of the page are all there is.
    document.querySelector("[data-map-tools]")?.remove();
    frame.remove();
    instead.style.display = "block";
  }
}
