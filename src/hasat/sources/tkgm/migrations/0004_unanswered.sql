-- Questions that nobody could answer while others were answered: a scan goes on without them, also
-- when it is taken up again. They say nothing about what is there.

CREATE TABLE tkgm.unanswered (
    scan     bigint NOT NULL REFERENCES tkgm.scan ON DELETE CASCADE,
    question text COLLATE "C" NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (scan, question)
);
