-- When the buildings of each parcel were last received, also where it has none.
CREATE TABLE tkgm.buildings_told (
    key     text COLLATE "C" PRIMARY KEY,
    told_at timestamptz NOT NULL
);
