-- Searching by title, identifier and alias: one narrow row a taxpayer beside each dataset.

-- Title and identifier in one line, so that one condition finds either and the line's order is
-- that of titles, then identifiers. The cut keeps a monstrous title from weighing on the search.
CREATE FUNCTION gib.search_line(identifier text, body jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT left(coalesce(core.fold(body ->> 'title'), ''), 500) || E'\n' || identifier
$$;

-- The aliases without `urn:mail:` and case, as a JSON array.
CREATE FUNCTION gib.search_aliases(body jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT replace(
        lower(jsonb_path_query_array(body, '$.aliases[*].alias')::text COLLATE "C"),
        '"urn:mail:', '"'
    )::jsonb
$$;

CREATE TABLE gib.search_einvoice (
    identifier text COLLATE "C" CONSTRAINT search_einvoice_pkey PRIMARY KEY,
    line       text COLLATE "C" NOT NULL,
    aliases    jsonb NOT NULL
);
CREATE TABLE gib.search_edespatch (
    identifier text COLLATE "C" CONSTRAINT search_edespatch_pkey PRIMARY KEY,
    line       text COLLATE "C" NOT NULL,
    aliases    jsonb NOT NULL
);

-- The datasets whose search rows are complete. The others are searched row by row in the mirror
-- itself, until the job gib_search has made them.
CREATE TABLE gib.search_ready (dataset text PRIMARY KEY);
INSERT INTO gib.search_ready
SELECT 'einvoice' WHERE NOT EXISTS (SELECT FROM core.einvoice)
UNION ALL
SELECT 'edespatch' WHERE NOT EXISTS (SELECT FROM core.edespatch);

-- Whoever changes the mirror changes the search rows in the same transaction, and only for the
-- records touched. A load empties the mirror first and fills it with triggers off; a change of very
-- many records leaves the rows to the job as well, which is quicker than so many index entries.
CREATE FUNCTION gib.keep_search() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    rows text := format('gib.%I', 'search_' || TG_TABLE_NAME);
    many boolean := TG_OP = 'TRUNCATE';
BEGIN
    -- Before looking whether they are complete: the job may be about to complete them.
    EXECUTE format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', rows);
    IF NOT EXISTS (SELECT FROM gib.search_ready WHERE dataset = TG_TABLE_NAME) THEN
        RETURN NULL;
    END IF;
    IF TG_OP IN ('INSERT', 'UPDATE') THEN
        SELECT count(*) > 50000 INTO many FROM came;
    END IF;
    IF many THEN
        DELETE FROM gib.search_ready WHERE dataset = TG_TABLE_NAME;
    ELSIF TG_OP = 'DELETE' THEN
        EXECUTE format('DELETE FROM %s AS s USING gone WHERE s.identifier = gone.key', rows);
    ELSE
        EXECUTE format(
            'INSERT INTO %s AS s (identifier, line, aliases)'
            ' SELECT key, gib.search_line(key, body), gib.search_aliases(body) FROM came'
            ' ON CONFLICT (identifier) DO UPDATE'
            ' SET line = excluded.line, aliases = excluded.aliases'
            ' WHERE (s.line, s.aliases) IS DISTINCT FROM (excluded.line, excluded.aliases)', rows);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER search_insert AFTER INSERT ON core.einvoice REFERENCING NEW TABLE AS came
FOR EACH STATEMENT EXECUTE FUNCTION gib.keep_search();
CREATE TRIGGER search_update AFTER UPDATE ON core.einvoice REFERENCING NEW TABLE AS came
FOR EACH STATEMENT EXECUTE FUNCTION gib.keep_search();
CREATE TRIGGER search_delete AFTER DELETE ON core.einvoice REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION gib.keep_search();
CREATE TRIGGER search_truncate AFTER TRUNCATE ON core.einvoice
FOR EACH STATEMENT EXECUTE FUNCTION gib.keep_search();
CREATE TRIGGER search_insert AFTER INSERT ON core.edespatch REFERENCING NEW TABLE AS came
FOR EACH STATEMENT EXECUTE FUNCTION gib.keep_search();
CREATE TRIGGER search_update AFTER UPDATE ON core.edespatch REFERENCING NEW TABLE AS came
FOR EACH STATEMENT EXECUTE FUNCTION gib.keep_search();
CREATE TRIGGER search_delete AFTER DELETE ON core.edespatch REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION gib.keep_search();
CREATE TRIGGER search_truncate AFTER TRUNCATE ON core.edespatch
FOR EACH STATEMENT EXECUTE FUNCTION gib.keep_search();
