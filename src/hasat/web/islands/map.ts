// The parcel map: scans, parcels by land use or age (density where there are too many) with their
// numbers, details on click, and drawing the area of the scan form.
import { Map as GlMap, ScaleControl, setWorkerUrl } from "maplibre-gl";
import type { GeoJSONSource, LngLatBoundsLike, StyleSpecification } from "maplibre-gl";
import { show as showDetails } from "./details";
import { Drawing } from "./drawing";
import { colours, labels, legend, prepare } from "./parcels";
import type { Colouring, Feature } from "./parcels";
import { fetchJson } from "./requests";

const MAX_PARCELS = 5000;
const TURKEY: LngLatBoundsLike = [25.6, 35.8, 44.9, 42.2];
const EMPTY: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };
const MIN_UPDATE_MS = 3000;
// From this zoom on, parcels are wide enough for their numbers.
const LABEL_ZOOM = 16;
const FITTING = { padding: 30, maxZoom: 17 };

interface Features extends GeoJSON.FeatureCollection {
  numberMatched: number;
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#888";
}

/** Parse west,south,east,north; Turkey if it is missing. */
function parseBounds(text: string | undefined): LngLatBoundsLike {
  return text ? (text.split(",").map(Number) as [number, number, number, number]) : TURKEY;
}

function style(place: HTMLElement): StyleSpecification {
  const base = place.dataset.baseMap;
  const ground = { "background-color": colour("--subtle") };
  return {
    version: 8,
    sources: {
      ...(base ? { base: { type: "raster", tiles: [base], tileSize: 256, maxzoom: 19 } } : {}),
      scans: { type: "geojson", data: EMPTY },
      density: { type: "geojson", data: EMPTY },
      unpublished: { type: "geojson", data: EMPTY },
      parcels: { type: "geojson", data: EMPTY },
      numbers: { type: "geojson", data: EMPTY },
      area: { type: "geojson", data: place.dataset.area ? JSON.parse(place.dataset.area) : EMPTY },
    },
    layers: [
      { id: "ground", type: "background", paint: ground },
      ...(base ? [{ id: "base", type: "raster" as const, source: "base" }] : []),
      {
        id: "scans",
        type: "fill",
        source: "scans",
        paint: { "fill-color": colour("--active"), "fill-opacity": 0.1 },
      },
      { id: "area", type: "fill", source: "area", paint: { "fill-color": colour("--warning"), "fill-opacity": 0.15 } },
      {
        id: "density",
        type: "fill",
        source: "density",
        paint: { "fill-color": colour("--accent"), "fill-opacity": ["+", 0.15, ["*", 0.75, ["get", "share"]]] },
      },
      {
        id: "unpublished",
        type: "fill",
        source: "unpublished",
        paint: { "fill-color": colour("--active"), "fill-opacity": 0.45, "fill-outline-color": colour("--text") },
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
        paint: { "line-color": colour("--text"), "line-width": 0.6, "line-opacity": 0.6 },
      },
      {
        id: "chosen",
        type: "line",
        source: "parcels",
        filter: ["==", ["get", "key"], ""],
        paint: { "line-color": colour("--text"), "line-width": 3 },
      },
      {
        id: "scan-edges",
        type: "line",
        source: "scans",
        paint: { "line-color": colour("--active"), "line-width": 2, "line-dasharray": [3, 2] },
      },
      {
        id: "numbers",
        type: "symbol",
        source: "numbers",
        minzoom: LABEL_ZOOM,
        layout: {
          "text-field": ["get", "label"],
          "text-font": ["sans-serif"],
          "text-size": ["interpolate", ["linear"], ["zoom"], LABEL_ZOOM, 10, 19, 14],
          "text-padding": 1,
        },
        paint: { "text-color": colour("--text"), "text-halo-color": colour("--surface"), "text-halo-width": 1.5 },
      },
      { id: "area-edges", type: "line", source: "area", paint: { "line-color": colour("--warning"), "line-width": 2.5 } },
    ],
  };
}

class ParcelMap {
  private readonly map: GlMap;
  private readonly texts: Record<string, string>;
  private readonly drawing: Drawing;
  private readonly unpublished = document.createElement("li");
  private requests = 0;
  private updatedAt = 0;
  private wanted: string;

  constructor(private readonly place: HTMLElement) {
    this.texts = JSON.parse(place.dataset.texts ?? "{}") as Record<string, string>;
    this.unpublished.hidden = true;
    this.wanted = place.dataset.chosen ?? "";
    setWorkerUrl(new URL(place.dataset.worker ?? "", location.href).href);
    this.map = new GlMap({
      container: place,
      style: style(place),
      bounds: parseBounds(place.dataset.bounds),
      fitBoundsOptions: FITTING,
      attributionControl: false,
      dragRotate: false,
      pitchWithRotate: false,
      touchPitch: false,
      trackResize: false,
      // Allows screenshots at any time.
      canvasContextAttributes: { preserveDrawingBuffer: true },
    });
    this.followSize(place);
    this.map.touchZoomRotate.disableRotation();
    this.map.addControl(new ScaleControl({}), "bottom-left");
    this.map.getCanvas().setAttribute("aria-label", this.texts.map ?? "");
    this.drawing = new Drawing(this.map, "area", (area) => this.submitArea(area));
    this.map.on("load", () => this.start());
    this.map.on("moveend", () => void this.update());
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

  /** Resize the map with its element, except to zero, as while the page is printed. */
  private followSize(place: HTMLElement): void {
    let [width, height] = [place.clientWidth, place.clientHeight];
    new ResizeObserver(() => {
      if (!place.clientWidth || !place.clientHeight) return;
      if (place.clientWidth === width && place.clientHeight === height) return;
      [width, height] = [place.clientWidth, place.clientHeight];
      this.map.resize();
    }).observe(place);
  }

  private start(): void {
    this.connectControls();
    void this.update();
    void this.updateScans();
    // Update with the page, but not at every event.
    addEventListener("hasat:updated", () => {
      if (document.hidden || Date.now() - this.updatedAt < MIN_UPDATE_MS) return;
      void this.update();
      void this.updateScans();
    });
  }

  private connectControls(): void {
    const on = (name: string, act: () => void): void => {
      document.querySelector<HTMLElement>(`[data-map=${name}]`)?.addEventListener("click", act);
    };
    on("in", () => this.map.zoomIn());
    on("out", () => this.map.zoomOut());
    on("everything", () => this.map.fitBounds(parseBounds(this.place.dataset.everything), FITTING));
    on("draw", () => {
      this.close();
      if (this.drawing.active) this.drawing.cancel();
      else this.drawing.start();
      // Enter shall finish the area, not press the button.
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
    this.unpublished.replaceChildren(...this.entry(colour("--active"), this.texts.unpublished ?? "").childNodes);
    document.querySelector("[data-map=legend]")?.replaceChildren(...entries, this.unpublished);
  }

  private entry(shade: string, text: string): HTMLElement {
    const entry = document.createElement("li");
    const sample = document.createElement("span");
    sample.style.background = shade;
    entry.append(sample, text);
    return entry;
  }

  /** Load the parcels in view, or their density if there are too many; outdated responses are ignored. */
  private async update(): Promise<void> {
    const request = ++this.requests;
    this.updatedAt = Date.now();
    const box = this.box();
    const download = document.querySelector<HTMLInputElement>("[data-map=download] [name=bbox]");
    if (download) download.value = box;
    try {
      const density = await fetchJson<Features>(`/api/v1/parcels/density?bbox=${box}`);
      if (request !== this.requests) return;
      let parcels = EMPTY;
      const isDense = density.numberMatched > MAX_PARCELS;
      if (!isDense) {
        const path = "/api/v1/parcels/collections/parcels/items";
        const found = await fetchJson<Features>(`${path}?bbox=${box}&limit=${MAX_PARCELS}`);
        if (request !== this.requests) return;
        const now = Date.now();
        parcels = { ...found, features: found.features.map((one) => prepare(one as Feature, now) as GeoJSON.Feature) };
      }
      this.setData("parcels", parcels);
      this.setData("numbers", labels(parcels.features as Feature[]));
      this.setData("density", isDense ? density : EMPTY);
      const count = density.numberMatched.toLocaleString(document.documentElement.lang);
      this.chooseWanted(parcels.features as Feature[]);
      this.showStatus((isDense ? this.texts.too_many : this.texts.in_view)?.replace("{count}", count) ?? "");
    } catch (error) {
      if (request === this.requests) this.showStatus((error as Error).message);
    }
  }

  /** The box of the view: west,south,east,north. */
  private box(): string {
    const bounds = this.map.getBounds();
    const clamp = (value: number, max: number): string => Math.max(-max, Math.min(max, value)).toFixed(5);
    return [
      clamp(bounds.getWest(), 180),
      clamp(bounds.getSouth(), 90),
      clamp(bounds.getEast(), 180),
      clamp(bounds.getNorth(), 90),
    ].join(",");
  }

  /** Show the details of the parcel that the page was opened for, once. */
  private chooseWanted(parcels: Feature[]): void {
    const found = parcels.find((one) => one.id === this.wanted);
    if (!found) return;
    this.wanted = "";
    this.choose(found);
  }

  /** Load the scanned areas, and the parcels of an unfinished scan that are not published yet. */
  private async updateScans(): Promise<void> {
    const path = "/api/v1/parcels/scans";
    try {
      const scans = await fetchJson<GeoJSON.FeatureCollection>(path);
      this.setData("scans", scans);
      const open = scans.features.find((scan) => scan.properties?.finishedAt === null);
      const found = open ? await fetchJson<GeoJSON.FeatureCollection>(`${path}/${open.id}/parcels`) : EMPTY;
      this.setData("unpublished", found);
      this.unpublished.hidden = !found.features.length;
    } catch {
      // The server is unreachable; the next update tries again.
    }
  }

  private choose(parcel: Feature): void {
    this.map.setFilter("chosen", ["==", ["get", "key"], String(parcel.properties.key)]);
    const place = document.querySelector<HTMLElement>("[data-map=details]");
    if (!place) return;
    showDetails(place, parcel, this.texts, () => this.close()).catch((error: Error) => this.showStatus(error.message));
  }

  private close(): void {
    this.map.setFilter("chosen", ["==", ["get", "key"], ""]);
    const place = document.querySelector<HTMLElement>("[data-map=details]");
    if (place) place.hidden = true;
  }

  /** Show on the button and on the map whether an area is being drawn. */
  private showDrawing(): void {
    const active = this.drawing.active;
    document.querySelector("[data-map=draw]")?.setAttribute("aria-pressed", String(active));
    const hint = document.querySelector("[data-map=hint]");
    if (hint) hint.textContent = active ? (this.texts.drawing ?? "") : "";
  }

  private submitArea(area: string | null): void {
    this.showDrawing();
    const field = document.querySelector<HTMLInputElement>("input[name=area]");
    if (area === null || !field) return;
    field.value = area;
    // The server computes the estimate, as it does without scripts.
    field.form?.requestSubmit();
  }

  private setData(source: string, data: GeoJSON.FeatureCollection): void {
    this.map.getSource<GeoJSONSource>(source)?.setData(data);
  }

  private showStatus(text: string): void {
    const line = document.querySelector("[data-map=status]");
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
    // Without WebGL the tables of the page remain.
    document.querySelector("[data-map-tools]")?.remove();
    frame.remove();
    instead.style.display = "block";
  }
}
