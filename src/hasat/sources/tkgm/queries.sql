-- name: density
-- Count the parcels in each cell of a grid over a box; the centre of a parcel decides.
SELECT cell_x, cell_y, count(*)
  FROM (SELECT least(floor(((p.west + p.east) / 2 - %(west)s) / %(width)s), %(across)s - 1)::int
                   AS cell_x,
               least(floor(((p.south + p.north) / 2 - %(south)s) / %(height)s), %(across)s - 1)::int
                   AS cell_y
          FROM core.parcels AS p
         WHERE {touches}) AS placed
 WHERE cell_x >= 0 AND cell_y >= 0
 GROUP BY cell_x, cell_y
 ORDER BY cell_x, cell_y

-- name: copy_empty_queries
-- Copy the queries without a parcel from the previous scan, with those it had copied itself.
INSERT INTO tkgm.known (scan, question, told_at, fresh)
SELECT %(scan)s, question, max(told_at), false
  FROM (SELECT question, told_at FROM tkgm.told WHERE scan = %(before)s AND key IS NULL
        UNION ALL
        SELECT question, told_at FROM tkgm.known WHERE scan = %(before)s AND key IS NULL) AS empty
 GROUP BY question

-- name: extent
-- Count, bounds and times of the mirrored parcels, each from the smallest table that has them.
SELECT coalesce((SELECT records FROM feed.head WHERE dataset = 'parcels'), 0),
       bounds.*, fetched.*
  FROM (SELECT min(west), min(south), max(east), max(north) FROM core.parcels
         WHERE %(bounds)s) AS bounds,
       (SELECT min(told_at), max(told_at) FROM tkgm.parcel_told) AS fetched

-- name: delete_expired_responses
-- Delete stored responses that are too old to be used again.
DELETE FROM tkgm.answer
 WHERE told_at < clock_timestamp() - CASE
       WHEN feature IS NULL THEN %(not_found_age)s::interval
       ELSE %(parcel_age)s::interval
   END

-- name: item
-- One parcel, with the time of its last response.
SELECT jsonb_set(p.body, '{properties,fetchedAt}', to_jsonb(
           to_char(coalesce(t.told_at, p.changed_at) AT TIME ZONE 'UTC',
                   'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))::text
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
 WHERE p.key = %(key)s

-- name: items
-- A page of parcels in the order of their keys, each with the time of its last response.
-- PostgreSQL cannot know how many a box holds; unless materialized, it would walk through all keys.
WITH matching AS {materialized} (
    SELECT p.key
      FROM core.parcels AS p
      LEFT JOIN tkgm.parcel_told AS t USING (key)
     WHERE {matches}
), page AS (
    SELECT key FROM matching WHERE key > %(after)s ORDER BY key LIMIT %(limit)s
)
SELECT p.key,
       jsonb_set(p.body, '{{properties,fetchedAt}}', to_jsonb(
           to_char(coalesce(t.told_at, p.changed_at) AT TIME ZONE 'UTC',
                   'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))::text
  FROM page
  JOIN core.parcels AS p USING (key)
  LEFT JOIN tkgm.parcel_told AS t USING (key)
 ORDER BY p.key

-- name: items_at_edge
-- Parcels whose bounding box is only partly inside a box: their outlines decide.
SELECT p.key, (p.body -> 'geometry')::text
  FROM core.parcels AS p
 WHERE {touches}
   AND NOT (box(point(%(west)s, %(south)s), point(%(east)s, %(north)s))
            @> box(point(p.east, p.north), point(p.west, p.south)))

-- name: items_count
-- Count the matching parcels.
SELECT count(*)
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
 WHERE {matches}

-- name: save_responses
-- Store responses received just now. The commit does not wait for the disk: what a crash of the
-- server loses is requested again.
INSERT INTO tkgm.answer AS known (question, feature, told_at)
SELECT question, feature, clock_timestamp()
  FROM (SELECT set_config('synchronous_commit', 'off', true)) AS asynchronous,
       unnest(%(questions)s::text[], %(features)s::jsonb[]) AS response (question, feature)
 ORDER BY question
ON CONFLICT (question) DO UPDATE SET feature = EXCLUDED.feature, told_at = EXCLUDED.told_at
RETURNING question, told_at

-- name: parcels_before_scan
-- Parcels in a box, the time of their last response, and the point that found each in a scan.
SELECT p.key, p.body, coalesce(t.told_at, p.changed_at) AS told_at, o.question
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
  LEFT JOIN (SELECT DISTINCT ON (key) key, question
               FROM tkgm.told
              WHERE scan = %(before)s AND key IS NOT NULL AND question LIKE '%%,%%'
              ORDER BY key, told_at, question) AS o USING (key)
 WHERE box(point(p.east, p.north), point(p.west, p.south))
       && box(point(%(east)s, %(north)s), point(%(west)s, %(south)s))
 ORDER BY told_at, p.key

-- name: parcels_in_box
-- Parcels in a box, or all of them, and the time of their last response.
SELECT p.body, coalesce(t.told_at, p.changed_at)
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
 WHERE %(west)s::double precision IS NULL
    OR box(point(p.east, p.north), point(p.west, p.south))
       && box(point(%(east)s, %(north)s), point(%(west)s, %(south)s))
 ORDER BY p.key

-- name: centres
-- Centres of the parcels in a box.
SELECT p.key, (p.west + p.east) / 2, (p.south + p.north) / 2
  FROM core.parcels AS p
 WHERE {touches}

-- name: stored_number
-- The newest stored response for a parcel number, whether queried by number or by point.
SELECT feature, told_at
  FROM (
    SELECT feature, told_at FROM tkgm.answer WHERE question = %(number)s OR key = %(number)s
    UNION ALL
    SELECT p.body, t.told_at
      FROM core.parcels AS p
      JOIN tkgm.parcel_told AS t USING (key)
     WHERE p.key = %(number)s
  ) AS found
 WHERE told_at > clock_timestamp() - CASE
       WHEN feature IS NULL THEN %(not_found_age)s::interval
       ELSE %(parcel_age)s::interval
   END
 ORDER BY told_at DESC
 LIMIT 1

-- name: stored_points
-- Stored responses for points: for the exact point, or a parcel around it; newest first.
SELECT query.question, found.feature, found.told_at, found.exact
  FROM unnest(%(questions)s::text[], %(lats)s::float8[], %(lons)s::float8[])
       AS query (question, lat, lon)
 CROSS JOIN LATERAL (
    SELECT a.feature, a.told_at, true AS exact
      FROM tkgm.answer AS a
     WHERE a.question = query.question
    UNION ALL
    SELECT a.feature, a.told_at, false
      FROM tkgm.answer AS a
     WHERE box(point(a.east, a.north), point(a.west, a.south))
           && box(point(query.lon, query.lat), point(query.lon, query.lat))
    UNION ALL
    SELECT p.body, t.told_at, false
      FROM core.parcels AS p
      JOIN tkgm.parcel_told AS t USING (key)
     WHERE box(point(p.east, p.north), point(p.west, p.south))
           && box(point(query.lon, query.lat), point(query.lon, query.lat))
 ) AS found
 WHERE found.told_at > clock_timestamp() - CASE
       WHEN found.feature IS NULL THEN %(not_found_age)s::interval
       ELSE %(parcel_age)s::interval
   END
 ORDER BY found.told_at DESC, found.exact DESC

-- name: previous_scan
-- The last complete scan of an area, if any, and the time since which parcels count as fresh:
-- within an age, or since the last complete scan with the same request.
SELECT (SELECT b.id
          FROM tkgm.scan AS b
         WHERE b.area = %(area)s AND b.method ->> 'method' = 'coverage'
           AND b.finished_at IS NOT NULL
         ORDER BY b.finished_at DESC
         LIMIT 1),
       greatest(clock_timestamp() - %(age)s,
                (SELECT max(same.finished_at) FROM tkgm.scan AS same WHERE same.wish = s.wish))
  FROM tkgm.scan AS s
 WHERE s.id = %(scan)s

-- name: scan_progress
-- Scans, newest first, with their responses so far.
SELECT s.id, s.began_at, s.finished_at, s.result,
       t.questions, t.parcels, t.last_answer_at
  FROM tkgm.scan AS s
 CROSS JOIN LATERAL (
        SELECT count(*) AS questions, count(DISTINCT key) AS parcels, max(told_at) AS last_answer_at
          FROM tkgm.told WHERE scan = s.id
       ) AS t
 ORDER BY s.id DESC
 LIMIT %(limit)s

-- name: scans
-- The latest scans with their areas and counts.
SELECT s.id, s.area, s.method, s.began_at, s.finished_at,
       coalesce((s.result ->> 'asked')::bigint, running.queries) AS queries,
       coalesce((s.result ->> 'found')::bigint, running.found) AS found,
       (s.result -> 'completeness' ->> 'low')::float8 AS at_least,
       (s.result -> 'completeness' -> 'numbers' ->> 'missing')::bigint AS missing_numbers
  FROM (SELECT * FROM tkgm.scan ORDER BY began_at DESC, id DESC LIMIT %(limit)s) AS s
 CROSS JOIN LATERAL (SELECT count(*) AS queries, count(DISTINCT t.key) AS found
                       FROM tkgm.told AS t
                      WHERE t.scan = s.id AND s.finished_at IS NULL) AS running
 ORDER BY s.began_at DESC, s.id DESC

-- name: sizes
-- Registered areas of parcels; some have none.
SELECT (body #>> '{properties,alan}')::double precision
  FROM core.parcels
 WHERE key = ANY (%(keys)s) AND jsonb_typeof(body #> '{properties,alan}') = 'number'

-- name: scan_outlines
-- Outlines that a scan has found, including those not yet in the mirror; the latest first.
SELECT key, feature ->> 'geometry'
  FROM (SELECT DISTINCT ON (key) key, feature, told_at
          FROM tkgm.told
         WHERE scan = %(scan)s AND key IS NOT NULL AND jsonb_typeof(feature -> 'geometry') = 'object'
         ORDER BY key, told_at) AS found
 ORDER BY told_at DESC, key
 LIMIT %(limit)s

-- name: selected_parcels
-- The matching parcels in the order of their keys, and the time of their last response.
SELECT p.body, coalesce(t.told_at, p.changed_at)
  FROM core.parcels AS p
  LEFT JOIN tkgm.parcel_told AS t USING (key)
 WHERE {matches}
 ORDER BY p.key
 LIMIT %(limit)s

-- name: tile_parcels
-- The parcels of a tile that are wide enough to be seen, the widest first.
SELECT p.key, p.body
  FROM core.parcels AS p
 WHERE {touches}
   AND (p.east - p.west >= %(least)s OR p.north - p.south >= %(least)s)
 ORDER BY p.east - p.west DESC, p.key
 LIMIT %(limit)s

-- name: save_list_responses
-- Store responses for a list until it is complete.
INSERT INTO tkgm.list_response AS known (list, question, feature, told_at)
SELECT %(list)s, question, feature, told_at
  FROM unnest(%(questions)s::text[], %(features)s::jsonb[], %(times)s::timestamptz[])
       AS response (question, feature, told_at)
ON CONFLICT (list, question) DO UPDATE SET feature = EXCLUDED.feature, told_at = EXCLUDED.told_at

-- name: delete_list_responses
-- Delete the responses of a list, and of lists that were not resumed for a month.
DELETE FROM tkgm.list_response AS r
 WHERE list = %(list)s
    OR list IN (SELECT list FROM tkgm.list_response GROUP BY list
                HAVING max(told_at) < clock_timestamp() - interval '30 days')

-- name: scan_to_delete
-- Whether a scan is running: a run works on its area, or a response arrived just now.
SELECT s.finished_at IS NULL
       AND (s.began_at > clock_timestamp() - interval '2 minutes'
            OR EXISTS (SELECT FROM tkgm.told AS t
                        WHERE t.scan = s.id AND t.told_at > clock_timestamp() - interval '2 minutes')
            OR EXISTS (SELECT FROM jobs.run AS r
                        WHERE r.job = 'tkgm_scan' AND r.state = 'running'
                          AND r.params -> 'area' = s.area))
  FROM tkgm.scan AS s
 WHERE s.id = %(scan)s

-- name: neighbourhoods
-- The neighbourhoods of the mirror with the names of one of their parcels: one step in the index
-- for each.
WITH RECURSIVE step (key) AS (
    (SELECT key FROM core.parcels ORDER BY key LIMIT 1)
    UNION ALL
    -- The character after the slash begins the next neighbourhood.
    SELECT (SELECT p.key FROM core.parcels AS p
             WHERE p.key >= split_part(step.key, '/', 1) || '0' ORDER BY p.key LIMIT 1)
      FROM step
     WHERE step.key IS NOT NULL
)
SELECT p.mahalle_id,
       coalesce(p.body #>> '{properties,mahalleAd}', ''),
       coalesce(p.body #>> '{properties,ilceAd}', ''),
       coalesce(p.body #>> '{properties,ilAd}', '')
  FROM step
  JOIN core.parcels AS p USING (key)
 ORDER BY p.mahalle_id

-- name: neighbourhood_bounds
-- The bounds and the number of the parcels of neighbourhoods.
SELECT p.mahalle_id, min(p.west), min(p.south), max(p.east), max(p.north), count(*)
  FROM unnest(%(ids)s::bigint[]) AS wanted (id)
  JOIN core.parcels AS p
    ON p.key >= wanted.id || '/' AND p.key < wanted.id || '0'
 GROUP BY p.mahalle_id

-- name: parcels_by_key
-- Parcels by their keys, with their bounds.
SELECT p.key, p.body -> 'properties', p.west, p.south, p.east, p.north
  FROM core.parcels AS p
 WHERE p.key = ANY (%(keys)s)
 ORDER BY p.key
 LIMIT %(limit)s

-- name: postgis_without_geometries
-- The schema of PostGIS if it is installed and its geometries have still to be made.
SELECT n.nspname
  FROM pg_extension AS e
  JOIN pg_namespace AS n ON n.oid = e.extnamespace
 WHERE e.extname = 'postgis'
   AND to_regclass('core.parcels') IS NOT NULL
   AND (to_regclass('tkgm_gis.parcels') IS NULL
        OR to_regprocedure('tkgm_gis.outline(jsonb)') IS NULL)
   AND has_database_privilege(current_database(), 'CREATE')
   AND has_schema_privilege(n.oid, 'USAGE')

-- name: make_geometries
-- The geometries of the parcels with their index, and the views for GIS programs.
DROP SCHEMA IF EXISTS tkgm_gis CASCADE;
CREATE SCHEMA tkgm_gis;
CREATE FUNCTION tkgm_gis.outline(body jsonb) RETURNS {postgis}.geometry
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = {postgis}, pg_catalog AS $$
BEGIN
    IF jsonb_typeof(body -> 'geometry') IS DISTINCT FROM 'object' THEN
        RETURN NULL;
    END IF;
    RETURN ST_Multi(ST_CollectionExtract(ST_MakeValid(
        ST_SetSRID(ST_GeomFromGeoJSON(body ->> 'geometry'), 4326)), 3));
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END
$$;
CREATE TABLE tkgm_gis.parcel_geometry (
    key  text COLLATE "C" PRIMARY KEY,
    geom {postgis}.geometry(MultiPolygon, 4326)
);
INSERT INTO tkgm_gis.parcel_geometry (key, geom)
SELECT key, tkgm_gis.outline(body) FROM core.parcels;
CREATE INDEX parcel_geometry_geom ON tkgm_gis.parcel_geometry USING gist (geom);
ANALYZE tkgm_gis.parcel_geometry;
CREATE VIEW tkgm_gis.parcels AS
SELECT p.key, p.mahalle_id, p.ada_no, p.parsel_no,
       p.body #>> '{{properties,ilAd}}' AS il,
       p.body #>> '{{properties,ilceAd}}' AS ilce,
       p.body #>> '{{properties,mahalleAd}}' AS mahalle,
       p.body #>> '{{properties,nitelik}}' AS nitelik,
       CASE jsonb_typeof(p.body #> '{{properties,alan}}')
            WHEN 'number' THEN (p.body #>> '{{properties,alan}}')::double precision END AS alan,
       coalesce(t.told_at, p.changed_at) AS fetched_at,
       g.geom
  FROM core.parcels AS p
  JOIN tkgm_gis.parcel_geometry AS g USING (key)
  LEFT JOIN tkgm.parcel_told AS t USING (key);
CREATE VIEW tkgm_gis.scans AS
SELECT s.id, s.began_at, s.finished_at, s.method ->> 'quality' AS quality,
       (s.result ->> 'found')::bigint AS parcels, made.geom
  FROM tkgm.scan AS s
 CROSS JOIN LATERAL (SELECT tkgm_gis.outline(jsonb_build_object('geometry', s.area))
                            ::{postgis}.geometry(MultiPolygon, 4326) AS geom) AS made;
COMMENT ON SCHEMA tkgm_gis IS 'Parcels and scans with PostGIS geometries; made and updated by Hasat'
