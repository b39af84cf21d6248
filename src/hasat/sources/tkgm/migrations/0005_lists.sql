-- The responses for a list of parcels that is not complete yet, so that it can be resumed on
-- another day; a list is known by the checksum of its file.
CREATE TABLE tkgm.list_response (
    list     bytea NOT NULL,
    question text COLLATE "C" NOT NULL,
    feature  jsonb,
    told_at  timestamptz NOT NULL,
    PRIMARY KEY (list, question)
);
COMMENT ON COLUMN tkgm.list_response.feature IS 'the parcel; null where there is none';
