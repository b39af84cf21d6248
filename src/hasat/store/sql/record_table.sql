-- Which migrations were applied, by which Hasat.
CREATE TABLE IF NOT EXISTS public.hasat_migration (
    set_name      text        NOT NULL,
    name          text        NOT NULL,
    checksum      text        NOT NULL,
    hasat_version text        NOT NULL,
    applied_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (set_name, name)
)
