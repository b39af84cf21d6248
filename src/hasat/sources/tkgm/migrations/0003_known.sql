-- What is known of an area when a scan of it begins: parcels to ask about again, and points and
-- numbers that had no parcel. Fixed for the scan's time, so that it can be taken up again exactly.

CREATE TABLE tkgm.known (
    scan     bigint NOT NULL REFERENCES tkgm.scan ON DELETE CASCADE,
    question text COLLATE "C" NOT NULL,
    key      text COLLATE "C",
    feature  jsonb,
    told_at  timestamptz NOT NULL,
    fresh    boolean NOT NULL
);
COMMENT ON COLUMN tkgm.known.question IS 'what was, or would be, answered with it';
COMMENT ON COLUMN tkgm.known.key IS 'the parcel; null where there was none';
COMMENT ON COLUMN tkgm.known.fresh IS 'told so lately that it is not asked about again';
CREATE INDEX known_scan ON tkgm.known (scan);

ALTER TABLE tkgm.scan ADD COLUMN after bigint REFERENCES tkgm.scan ON DELETE SET NULL;
COMMENT ON COLUMN tkgm.scan.after IS 'the scan of the same area from which this one goes on';
