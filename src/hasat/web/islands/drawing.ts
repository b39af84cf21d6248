// Drawing an area: one click per corner, a double click or Enter finishes, Escape cancels.
import type { GeoJSONSource, Map as GlMap, MapMouseEvent } from "maplibre-gl";

type Corner = [lon: number, lat: number];

export class Drawing {
  private corners: Corner[] | null = null;

  constructor(
    private readonly map: GlMap,
    private readonly source: string,
    private readonly finished: (area: string | null) => void,
  ) {
    map.on("click", (event) => this.add(event));
    map.on("mousemove", (event) => this.corners && this.show([...this.corners, corner(event)]));
    map.on("dblclick", (event) => {
      if (!this.corners) return;
      event.preventDefault();
      this.finish();
    });
    addEventListener("keydown", (event) => {
      if (!this.corners) return;
      if (event.key === "Enter") this.finish();
      if (event.key === "Escape") this.cancel();
    });
  }

  get active(): boolean {
    return this.corners !== null;
  }

  start(): void {
    this.corners = [];
    this.map.getCanvas().classList.add("drawing");
    this.show([]);
  }

  cancel(): void {
    this.stop(null);
  }

  private add(event: MapMouseEvent): void {
    if (!this.corners) return;
    const [lon, lat] = corner(event);
    const last = this.corners.at(-1);
    // Ignore the second click of a double click.
    if (!last || last[0] !== lon || last[1] !== lat) this.corners.push([lon, lat]);
    this.show(this.corners);
  }

  private finish(): void {
    const corners = this.corners ?? [];
    this.stop(corners.length < 3 ? null : corners.map((one) => one.join(",")).join(" "));
  }

  private stop(area: string | null): void {
    this.corners = null;
    this.map.getCanvas().classList.remove("drawing");
    if (area === null) this.show([]);
    this.finished(area);
  }

  private show(corners: Corner[]): void {
    const ring = corners.length ? [...corners, corners[0] as Corner] : [];
    this.map.getSource<GeoJSONSource>(this.source)?.setData({
      type: "Feature",
      properties: {},
      geometry: { type: "Polygon", coordinates: ring.length > 3 ? [ring] : [[...ring, ...ring]] },
    });
  }
}

function corner(event: MapMouseEvent): Corner {
  return [Number(event.lngLat.lng.toFixed(5)), Number(event.lngLat.lat.toFixed(5))];
}
