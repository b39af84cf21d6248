-- Searching by words in any order, with abbreviations, and by the domain of an alias.

-- What a folded title abbreviates, written out, and its initials without dots (a.b.c. is abc).
-- The abbreviations are those of hasat.sources.gib.search_words; a test compares them.
CREATE FUNCTION gib.search_words(title text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    -- Most titles abbreviate nothing, and this is much faster to see.
    SELECT CASE WHEN title !~ '(?<![a-z0-9])(a\.? ?s|ltd|sti|san|tic|ith|ihr|ins|muh|paz|taah|teks|nak|hiz|koop)(?![a-z0-9])|(?<![a-z0-9])[a-z0-9]\.[a-z0-9](?![a-z0-9])'
           THEN '' ELSE (
        WITH initials AS (
            SELECT replace(found[1], '.', '') AS word
              FROM regexp_matches(
                       title, '(?<![a-z0-9])([a-z0-9](?:\.[a-z0-9])+)(?![a-z0-9])', 'g'
                   ) AS found
        ), parts AS (
            SELECT word FROM initials
             UNION
            SELECT regexp_split_to_table(title, '[ .,/&()''"-]+')
        )
        SELECT coalesce(string_agg(word, ' ' ORDER BY word), '')
          FROM (
            SELECT word FROM initials
             UNION
            SELECT words
              FROM parts
              JOIN (VALUES
                    ('as', 'anonim sirketi'), ('ltd', 'limited'), ('sti', 'sirketi'),
                    ('san', 'sanayi'), ('tic', 'ticaret'), ('ith', 'ithalat'), ('ihr', 'ihracat'),
                    ('ins', 'insaat'), ('muh', 'muhendislik'), ('paz', 'pazarlama'),
                    ('taah', 'taahhut'), ('teks', 'tekstil'), ('nak', 'nakliyat'),
                    ('hiz', 'hizmetleri'), ('koop', 'kooperatifi')
                   ) AS known (word, words) USING (word)
          ) AS found
    ) END
$$;

CREATE OR REPLACE FUNCTION gib.search_line(identifier text, body jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    title text := left(coalesce(core.fold(body ->> 'title'), ''), 500);
    words text := gib.search_words(title);
BEGIN
    RETURN title || E'\n' || identifier || CASE words WHEN '' THEN '' ELSE E'\n' || words END;
END
$$;

-- Each alias, and its domain as `@domain`.
CREATE OR REPLACE FUNCTION gib.search_aliases(body jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT regexp_replace(
        replace(
            lower(jsonb_path_query_array(body, '$.aliases[*].alias')::text COLLATE "C"),
            '"urn:mail:', '"'
        ),
        '"([^"@]*)(@[^"@]+)"', '"\1\2", "\2"', 'g'
    )::jsonb
$$;

-- The job gib_search computes the rows again; until then searches compute them.
DELETE FROM gib.search_ready AS r
 WHERE (r.dataset = 'einvoice' AND EXISTS (SELECT FROM gib.search_einvoice))
    OR (r.dataset = 'edespatch' AND EXISTS (SELECT FROM gib.search_edespatch));
