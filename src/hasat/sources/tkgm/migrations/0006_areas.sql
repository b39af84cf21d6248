-- Areas that were uploaded to plan a scan, by the checksum of their outline.
CREATE TABLE tkgm.area (
    id        text COLLATE "C" PRIMARY KEY,
    name      text NOT NULL,
    outline   jsonb NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN tkgm.area.outline IS 'a GeoJSON polygon or multipolygon in degrees';
