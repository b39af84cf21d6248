-- What single questions were told, so that they need not be asked again for a while.
CREATE TABLE tkgm.answer (
    question text COLLATE "C" PRIMARY KEY,
    feature  jsonb,
    told_at  timestamptz NOT NULL,
    key   text COLLATE "C" GENERATED ALWAYS AS (feature ->> 'id') STORED,
    west  double precision GENERATED ALWAYS AS ((feature #>> '{bbox,0}')::double precision) STORED,
    south double precision GENERATED ALWAYS AS ((feature #>> '{bbox,1}')::double precision) STORED,
    east  double precision GENERATED ALWAYS AS ((feature #>> '{bbox,2}')::double precision) STORED,
    north double precision GENERATED ALWAYS AS ((feature #>> '{bbox,3}')::double precision) STORED
);
CREATE INDEX answer_key ON tkgm.answer (key);
CREATE INDEX answer_box ON tkgm.answer USING gist (box(point(east, north), point(west, south)));
COMMENT ON COLUMN tkgm.answer.feature IS 'the parcel as it is published; null where there is none';

-- Provinces (of 0), districts of a province, neighbourhoods of a district: a list as it was told.
CREATE TABLE tkgm.place_list (
    level   text COLLATE "C" NOT NULL,
    parent  bigint NOT NULL,
    body    jsonb NOT NULL,
    told_at timestamptz NOT NULL,
    PRIMARY KEY (level, parent)
);
