-- How far backfills are, where that got lost.
INSERT INTO core.backfill_progress (job, league_id, season, first_date, next_date, completed, updated_at)
SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::date[], %s::date[], %s::boolean[], %s::timestamptz[])
    ON CONFLICT DO NOTHING
