-- The taxpayer lists: two datasets, what each list said last, and the original service's views.

CREATE SCHEMA gib;

CREATE TABLE core.einvoice (LIKE feed.record INCLUDING ALL, CONSTRAINT einvoice_pkey PRIMARY KEY (key));
CREATE TABLE core.edespatch (LIKE feed.record INCLUDING ALL, CONSTRAINT edespatch_pkey PRIMARY KEY (key));

-- What the last good run knew of each list. Fingerprints and identifiers are parallel arrays.
CREATE TABLE gib.list (
    name         text PRIMARY KEY CHECK (name IN ('PK', 'GB')),
    run          bigint,
    users        bigint NOT NULL,
    xml_bytes    bigint NOT NULL,
    sha256       bytea NOT NULL,
    seed         bigint NOT NULL,
    fingerprints bytea NOT NULL,
    identifiers  bytea NOT NULL
);
-- Random bytes: nothing to compress.
ALTER TABLE gib.list ALTER fingerprints SET STORAGE EXTERNAL, ALTER identifiers SET STORAGE EXTERNAL;

-- The parts of each taxpayer as the lists said them, to merge again when one of them changes.
CREATE TABLE gib.taxpayer (
    identifier text COLLATE "C" CONSTRAINT taxpayer_pkey PRIMARY KEY,
    parts      text NOT NULL
);

-- Runs that the guard held, with what it saw.
CREATE TABLE gib.held (
    run        bigint PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    state      text NOT NULL DEFAULT 'waiting'
               CHECK (state IN ('waiting', 'approved', 'rejected', 'superseded')),
    decided_at timestamptz,
    preview    jsonb NOT NULL,
    folder     text NOT NULL
);

CREATE VIEW public.e_invoice_gib_users AS
SELECT key AS identifier,
       body ->> 'title' AS title,
       body ->> 'accountType' AS account_type,
       body ->> 'type' AS type,
       body ->> 'firstCreationTime' AS first_creation_time,
       body -> 'aliases' AS aliases_json,
       encode(digest, 'hex') AS content_hash,
       first_seen_at, changed_at
  FROM core.einvoice;

CREATE VIEW public.e_despatch_gib_users AS
SELECT key AS identifier,
       body ->> 'title' AS title,
       body ->> 'accountType' AS account_type,
       body ->> 'type' AS type,
       body ->> 'firstCreationTime' AS first_creation_time,
       body -> 'aliases' AS aliases_json,
       encode(digest, 'hex') AS content_hash,
       first_seen_at, changed_at
  FROM core.edespatch;

CREATE VIEW public.gib_user_changelog AS
SELECT dataset || ':' || seq AS id,
       CASE dataset WHEN 'einvoice' THEN 1 ELSE 2 END::smallint AS document_type,
       key AS identifier,
       kind AS change_type,
       changed_at AT TIME ZONE 'Europe/Istanbul' AS changed_at,
       body ->> 'title' AS title,
       body ->> 'accountType' AS account_type,
       body ->> 'type' AS type,
       body ->> 'firstCreationTime' AS first_creation_time,
       body -> 'aliases' AS aliases_json
  FROM feed.change
 WHERE dataset IN ('einvoice', 'edespatch');
