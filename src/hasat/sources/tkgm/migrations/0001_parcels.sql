-- Parcels: the mirror, and the scans that fill it.

CREATE SCHEMA tkgm;

CREATE TABLE core.parcels (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT parcels_pkey PRIMARY KEY (key),
    mahalle_id bigint GENERATED ALWAYS AS (split_part(key, '/', 1)::bigint) STORED,
    ada_no     text GENERATED ALWAYS AS (split_part(key, '/', 2)) STORED,
    parsel_no  text GENERATED ALWAYS AS (split_part(key, '/', 3)) STORED,
    west  double precision GENERATED ALWAYS AS ((body #>> '{bbox,0}')::double precision) STORED,
    south double precision GENERATED ALWAYS AS ((body #>> '{bbox,1}')::double precision) STORED,
    east  double precision GENERATED ALWAYS AS ((body #>> '{bbox,2}')::double precision) STORED,
    north double precision GENERATED ALWAYS AS ((body #>> '{bbox,3}')::double precision) STORED
);
CREATE INDEX parcels_box ON core.parcels USING gist (box(point(east, north), point(west, south)));

-- When each parcel was last told; a parcel that is told again unchanged is no change.
CREATE TABLE tkgm.parcel_told (
    key     text COLLATE "C" PRIMARY KEY,
    told_at timestamptz NOT NULL
);

-- One row a scan of an area; the same command goes on with the same row.
CREATE TABLE tkgm.scan (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    wish        bytea NOT NULL,
    area        jsonb NOT NULL,
    method      jsonb NOT NULL,
    abreast     integer NOT NULL,
    began_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    result      jsonb
);
CREATE UNIQUE INDEX scan_open ON tkgm.scan (wish) WHERE finished_at IS NULL;

-- What a scan was told: paid for once, whatever happens to the process.
CREATE TABLE tkgm.told (
    scan     bigint NOT NULL REFERENCES tkgm.scan ON DELETE CASCADE,
    question text COLLATE "C" NOT NULL,
    key      text COLLATE "C",
    feature  jsonb,
    told_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scan, question)
);
COMMENT ON COLUMN tkgm.told.key IS 'the parcel that was told; null where there is none';
