-- name: current_seasons
-- The current season of each of these leagues.
SELECT l.league_id, l.name, max(s.year)
  FROM football.seasons_of(%(leagues)s) AS s
  JOIN core.leagues AS l USING (league_id)
 WHERE s.is_current
 GROUP BY l.league_id, l.name

-- name: days_of_matches
-- Days in a range, by UTC, with scheduled matches of these leagues.
SELECT DISTINCT (date AT TIME ZONE 'UTC')::date AS day
  FROM core.fixtures
 WHERE league_id = ANY (%(leagues)s)
   AND date >= (%(after)s::date + 1)::timestamp AT TIME ZONE 'UTC'
   AND date < (%(until)s::date + 1)::timestamp AT TIME ZONE 'UTC'
 ORDER BY day

-- name: details_due
-- Finished matches without details, or whose details are older than the match (by a minute, since one
-- response has both), a day or a week. A match missing from a response waits a day. A named season is due.
SELECT f.fixture_id, f.league_id, f.season
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
 USING (league_id, season)
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
 WHERE f.status_short = ANY (%(finished)s)
   AND f.date BETWEEN %(since)s AND %(now)s
   AND (%(named)s OR t.missed_at IS NULL OR t.missed_at < %(now)s - interval '1 day')
   AND (%(named)s OR t.details_at IS NULL OR f.changed_at > t.details_at + interval '1 minute'
        OR (%(now)s >= f.date + interval '1 day' AND t.details_at < f.date + interval '1 day')
        OR (%(now)s >= f.date + interval '7 days' AND t.details_at < f.date + interval '7 days'
            AND f.date > %(now)s - interval '90 days'))
 ORDER BY t.details_at IS NOT NULL,
          extract(epoch FROM f.date) * CASE WHEN %(oldest_first)s THEN 1 ELSE -1 END, f.fixture_id
 LIMIT %(limit)s

-- name: end_inferences
-- Delete inferences about matches that are gone or have not begun.
DELETE FROM core.fixture_inferences AS i
 WHERE NOT EXISTS (SELECT FROM core.fixtures AS f
                    WHERE f.fixture_id = i.fixture_id AND (f.date <= clock_timestamp()) IS NOT FALSE)

-- name: orphaned_matches
-- Matches received earlier that are not in the mirror, except those that come back now.
SELECT t.fixture_id
  FROM football.fixture_told AS t
 WHERE NOT EXISTS (SELECT FROM core.fixtures AS f WHERE f.fixture_id = t.fixture_id)
   AND NOT t.fixture_id = ANY (%(returning)s)

-- name: infer_finished
-- Mark matches as probably finished and return their number.
WITH candidate AS (
    SELECT *
      FROM football.may_be_over(%(leagues)s, %(statuses)s, %(threshold)s, %(lag)s)
     ORDER BY date, fixture_id
     LIMIT %(limit)s
), marked AS (
    INSERT INTO core.fixture_inferences (fixture_id, inferred_status, reason, inferred_at)
    SELECT fixture_id, 'FT',
           format('began %%s, last reported as %%s %%s', date, status_short, coalesce(told_at::text, 'never')),
           clock_timestamp()
      FROM candidate
     WHERE NOT %(dry_run)s
        ON CONFLICT (fixture_id) DO NOTHING
    RETURNING fixture_id
)
SELECT CASE WHEN %(dry_run)s THEN (SELECT count(*) FROM candidate) ELSE (SELECT count(*) FROM marked) END

-- name: store_response
-- Store a response; a body equal to the last one for the same request only updates its times.
-- If it loads other leagues or removes other matches than before, it gets a new row; so does one of
-- a hold, which keeps its place in the order of receipt.
WITH latest AS (
    SELECT id, fetched_at, body_hash, leagues, vanished
      FROM raw.api_responses
     WHERE request_hash = %(request_hash)s
     ORDER BY seen_order DESC
     LIMIT 1
), again AS (
    UPDATE raw.api_responses AS r
       SET last_fetched_at = clock_timestamp(), times = r.times + 1,
           seen_order = nextval('raw.answer_order')
      FROM latest
     WHERE r.id = latest.id AND r.fetched_at = latest.fetched_at
       AND %(order)s::bigint IS NULL
       AND latest.body_hash = %(body_hash)s
       AND latest.leagues IS NOT DISTINCT FROM %(leagues)s::bigint[]
       AND latest.vanished IS NOT DISTINCT FROM %(vanished)s::bigint[]
    RETURNING r.id
)
INSERT INTO raw.api_responses
       (endpoint, requested_params, status_code, response_headers, body, errors, results,
        fetched_at, last_fetched_at, request_hash, body_hash, run, leagues, vanished, seen_order)
SELECT %(endpoint)s, %(parameters)s, %(status)s, %(headers)s, %(body)s, %(errors)s, %(results)s,
       at, at, %(request_hash)s, %(body_hash)s, %(run)s, %(leagues)s, %(vanished)s,
       coalesce(%(order)s, nextval('raw.answer_order'))
  FROM clock_timestamp() AS at
 WHERE NOT EXISTS (SELECT FROM again)

-- name: newer_fixtures
-- The matches that were received after a time, changed or not.
SELECT fixture_id::text FROM football.fixture_told WHERE told_at > %(than)s

-- name: last_requests
-- When an endpoint was last requested, by league, season and team; recent refusals count as requests.
SELECT league_id, season, team_id, max(at)
  FROM (SELECT league_id, season, team_id, asked_at AS at
          FROM football.season_asked
         WHERE endpoint = %(endpoint)s
         UNION ALL
        SELECT league_id, season, team_id, refused_at
          FROM football.refusal
         WHERE endpoint = %(endpoint)s AND refused_at > %(refused_since)s) AS noted
 GROUP BY league_id, season, team_id

-- name: last_ended
-- The newest change of a finished match in each season: recent news, and later discoveries.
-- Awarded matches count in tables, too.
SELECT league_id, season,
       max(changed_at) FILTER (WHERE football.is_news(changed_at, first_seen_at, date)),
       max(changed_at) FILTER (WHERE NOT football.is_news(changed_at, first_seen_at, date))
  FROM core.fixtures
 WHERE status_short = ANY (%(finished)s) OR football.state_of(status_short) = 'not_played'
 GROUP BY league_id, season

-- name: league_names
-- Every league with name, country and seasons.
SELECT l.league_id, coalesce(l.name, ''), coalesce(l.country, ''),
       ARRAY(SELECT core.whole(s -> 'year')
               FROM jsonb_array_elements(CASE jsonb_typeof(l.seasons) WHEN 'array' THEN l.seasons ELSE '[]' END) AS s
              WHERE core.whole(s -> 'year') IS NOT NULL)
  FROM core.leagues AS l
 WHERE l.league_id IS NOT NULL
 ORDER BY l.league_id

-- name: listed_seasons
-- The seasons of these leagues as /leagues lists them; invalid dates are NULL.
SELECT league_id, year, first_day, last_day, coverage
  FROM football.seasons_of(%(leagues)s)

-- name: unlisted_seasons
-- Which of these seasons the API's list of leagues lacks, and whether the mirror has matches of them.
SELECT s.league_id, s.season,
       EXISTS (SELECT FROM core.fixtures AS f WHERE f.league_id = s.league_id AND f.season = s.season)
  FROM unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) WITH ORDINALITY AS s (league_id, season, no)
 WHERE EXISTS (SELECT FROM core.leagues)
 ORDER BY s.no

-- name: may_be_over
-- Matches that began long ago and have had no news for long.
SELECT fixture_id
  FROM football.may_be_over(%(leagues)s, %(statuses)s, %(threshold)s, %(lag)s)
 ORDER BY date, fixture_id
 LIMIT %(limit)s

-- name: metrics
-- Metrics of the mirror: name, label, value.
SELECT 'fixtures', football.state_of(status_short), count(*)::double precision FROM core.fixtures GROUP BY 2
UNION ALL
SELECT 'inferred_fixtures', '', count(*) FROM core.fixture_inferences
UNION ALL
SELECT 'set_aside', '', count(*) FROM raw.set_aside WHERE source = 'football'
UNION ALL
SELECT 'last_told_timestamp_seconds', '', extract(epoch FROM max(told_at))::double precision FROM football.fixture_told

-- name: month_of_responses
-- A month of responses with the columns of a file, in the order of receipt.
SELECT id, seen_order, endpoint, requested_params::text, leagues, vanished, status_code, response_headers::text,
       body::text, errors::text, results, fetched_at, last_fetched_at, times, request_hash, body_hash, run
  FROM {partition}
 ORDER BY seen_order

-- name: near_kick_off
-- Matches that start soon and were not fetched since line-ups are expected.
SELECT f.fixture_id
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
 USING (league_id, season)
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
 WHERE f.status_short = 'NS'
   AND f.date BETWEEN %(now)s AND %(now)s + %(window)s::interval
   AND (t.details_at IS NULL OR t.details_at < f.date - %(window)s::interval)
   AND (t.missed_at IS NULL OR t.missed_at < f.date - %(window)s::interval)
 ORDER BY f.date, f.fixture_id
 LIMIT %(limit)s

-- name: newest_responses
-- All responses, the one received last first.
SELECT seen_order, substr(endpoint, 2), requested_params, leagues, coalesce(vanished, '{}'), last_fetched_at, body::text
  FROM raw.api_responses
 ORDER BY seen_order DESC

-- name: record_archive
-- Record the file of a month.
INSERT INTO raw.api_archives (path, month, answers, last_order, digest, size, sha256)
VALUES (%(path)s, %(month)s, %(responses)s, %(last_order)s, %(digest)s, %(size)s, %(sha256)s)
    ON CONFLICT (path) DO NOTHING

-- name: record_request
-- Record a request to an endpoint.
INSERT INTO football.season_asked (endpoint, league_id, season, team_id, asked_at)
VALUES (%(endpoint)s, %(league)s, %(season)s, %(team)s, clock_timestamp())
    ON CONFLICT (endpoint, league_id, season, team_id) DO UPDATE SET asked_at = EXCLUDED.asked_at

-- name: record_blocks
-- Record which kinds of details a response had, and which of them were empty.
UPDATE football.fixture_told AS t
   SET empty_blocks = ARRAY(SELECT block FROM unnest(t.empty_blocks) AS block WHERE block <> ALL (given.blocks)
                            UNION
                            SELECT unnest(given.empty))
  FROM (SELECT fixture_id, array_agg(block) AS blocks, array_agg(block) FILTER (WHERE is_empty) AS empty
          FROM unnest(%(fixtures)s::bigint[], %(blocks)s::text[], %(empty)s::boolean[]) AS b (fixture_id, block, is_empty)
         GROUP BY fixture_id) AS given
 WHERE t.fixture_id = given.fixture_id

-- name: record_listed
-- Record the API's count of matches in a whole season.
INSERT INTO football.season_listed (league_id, season, matches, listed_at)
VALUES (%(league)s, %(season)s, %(matches)s, clock_timestamp())
    ON CONFLICT (league_id, season) DO UPDATE
   SET matches = EXCLUDED.matches, listed_at = EXCLUDED.listed_at

-- name: record_refusal
-- Record that an endpoint refused a request.
INSERT INTO football.refusal (endpoint, league_id, season, team_id, refused_at)
VALUES (%(endpoint)s, %(league)s, %(season)s, %(team)s, clock_timestamp())
    ON CONFLICT (endpoint, league_id, season, team_id) DO UPDATE SET refused_at = EXCLUDED.refused_at

-- name: record_teams
-- Record whether the teams of a season were fetched.
INSERT INTO core.team_bootstrap_progress (league_id, season, completed, last_error, updated_at)
VALUES (%(league)s, %(season)s, %(completed)s, %(error)s, clock_timestamp())
    ON CONFLICT (league_id, season) DO UPDATE
   SET completed = EXCLUDED.completed, last_error = EXCLUDED.last_error,
       updated_at = EXCLUDED.updated_at

-- name: record_fixtures
-- Record requested matches as received, with details, or missing; delete inferences about received ones.
WITH received AS (
    INSERT INTO football.fixture_told AS t (fixture_id, told_at, details_at)
    SELECT id, clock_timestamp(),
           CASE WHEN id = ANY (%(detailed)s) THEN clock_timestamp() END
      FROM unnest(%(requested)s::bigint[]) AS id
     WHERE id = ANY (%(received)s) OR id = ANY (%(detailed)s)
        ON CONFLICT (fixture_id) DO UPDATE
       SET told_at = EXCLUDED.told_at,
           details_at = coalesce(EXCLUDED.details_at, t.details_at),
           missed_at = NULL
), missed AS (
    UPDATE football.fixture_told
       SET missed_at = clock_timestamp()
     WHERE fixture_id = ANY (%(requested)s) AND NOT fixture_id = ANY (%(received)s) AND NOT fixture_id = ANY (%(detailed)s)
)
DELETE FROM core.fixture_inferences WHERE fixture_id = ANY (%(received)s)

-- name: old_months
-- Partitions of raw.api_responses whose whole month is older than the given days, oldest first.
SELECT to_date(right(child.relname, 7), 'YYYY_MM')
  FROM pg_inherits AS i
  JOIN pg_class AS child ON child.oid = i.inhrelid
 WHERE i.inhparent = 'raw.api_responses'::regclass
   AND to_date(right(child.relname, 7), 'YYYY_MM') + interval '1 month'
       <= (clock_timestamp() AT TIME ZONE 'UTC') - make_interval(days => %(days)s)
 ORDER BY 1

-- name: restore_requests
-- Restore missing times of requests.
INSERT INTO football.season_asked (endpoint, league_id, season, team_id, asked_at)
SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[])
    ON CONFLICT DO NOTHING

-- name: restore_listed
-- Restore missing counts of matches in seasons.
INSERT INTO football.season_listed (league_id, season, matches, listed_at)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[])
    ON CONFLICT DO NOTHING

-- name: restore_progress
-- Restore missing progress of backfills.
INSERT INTO core.backfill_progress (job, league_id, season, first_date, next_date, completed, updated_at)
SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::date[], %s::date[], %s::boolean[], %s::timestamptz[])
    ON CONFLICT DO NOTHING

-- name: restore_teams
-- Restore missing seasons whose teams were fetched.
INSERT INTO core.team_bootstrap_progress (league_id, season, completed, updated_at)
SELECT league_id, season, true, at
  FROM unnest(%s::bigint[], %s::bigint[], %s::timestamptz[]) AS t (league_id, season, at)
    ON CONFLICT DO NOTHING

-- name: restore_fixtures
-- Restore missing times of matches and their details; empty blocks are written as `events,lineups`.
INSERT INTO football.fixture_told (fixture_id, told_at, details_at, empty_blocks)
SELECT t.fixture_id, t.told_at, t.details_at, string_to_array(t.empty, ',')
  FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::text[])
       AS t (fixture_id, told_at, details_at, empty)
 WHERE EXISTS (SELECT FROM core.fixtures AS f WHERE f.fixture_id = t.fixture_id)
    ON CONFLICT DO NOTHING

-- name: save_progress
-- Save the progress of a backfill.
INSERT INTO core.backfill_progress
       (job, league_id, season, first_date, next_date, completed, last_error, updated_at)
VALUES (%(job)s, %(league)s, %(season)s, %(first_date)s, %(next_date)s, %(completed)s,
        %(last_error)s, clock_timestamp())
    ON CONFLICT (job, league_id, season) DO UPDATE
   SET first_date = EXCLUDED.first_date, next_date = EXCLUDED.next_date,
       completed = EXCLUDED.completed, last_error = EXCLUDED.last_error,
       updated_at = EXCLUDED.updated_at

-- name: stated_limit
-- The day limit that the API stated last.
SELECT plan FROM budget.day WHERE upstream = 'football' AND plan IS NOT NULL ORDER BY day DESC LIMIT 1

-- name: stale_fixtures
-- Matches in these states that began a while ago, without news for a time. With `checks`, a recent match waits
-- for the next of these times after kick-off; an old match is due once an hour at most. `unknown` adds unknown
-- states.
SELECT f.fixture_id, f.date
  FROM core.fixtures AS f
  LEFT JOIN (SELECT fixture_id, greatest(told_at, missed_at) AS asked_at FROM football.fixture_told) AS t
 USING (fixture_id)
 WHERE f.league_id = ANY (%(leagues)s)
   AND (f.status_short = ANY (%(statuses)s) OR (%(unknown)s AND football.state_of(f.status_short) = 'unknown'))
   AND f.date BETWEEN %(now)s - %(lookback)s::interval AND %(now)s - %(began)s::interval
   AND (t.asked_at IS NULL
        OR (t.asked_at < %(now)s - CASE WHEN f.date < %(now)s - %(late)s::interval
                                       THEN greatest(%(silence)s, interval '1 hour')
                                       ELSE %(silence)s END
            AND (cardinality(%(checks)s::interval[]) = 0
                 OR f.date < %(now)s - %(late)s::interval
                 OR EXISTS (SELECT FROM unnest(%(checks)s::interval[]) AS look
                             WHERE f.date + look <= %(now)s AND t.asked_at < f.date + look))))
 ORDER BY t.asked_at NULLS FIRST, f.fixture_id
 LIMIT %(limit)s

-- name: status
-- Freshness of the mirror and the newest run of each job.
SELECT latest.told_at, extract(epoch FROM clock_timestamp() - latest.told_at) / 3600 AS hours,
       coalesce((SELECT records FROM feed.head WHERE dataset = 'fixtures'), 0) AS fixtures,
       (SELECT count(*) FROM core.fixture_inferences) AS inferred,
       (SELECT count(*) FROM raw.set_aside WHERE source = 'football') AS set_aside,
       runs.last_runs
  FROM (SELECT max(told_at) AS told_at FROM football.fixture_told) AS latest
 CROSS JOIN (SELECT coalesce(jsonb_agg(r ORDER BY r.finished_at DESC), '[]') AS last_runs
               FROM unnest(%(jobs)s::text[]) AS wanted (name)
              CROSS JOIN LATERAL (
                    -- This form finds out at once that a job has never run.
                    SELECT job, outcome, finished_at, requests, rows_changed AS "rowsChanged"
                      FROM jobs.run
                     WHERE job >= wanted.name AND state = 'finished'
                     ORDER BY job, id DESC
                     LIMIT 1
                    ) AS r
              WHERE r.job = wanted.name) AS runs

-- name: claim_inferred
-- Count an attempt for matches marked as finished that are due for verification, and return them.
UPDATE core.fixture_inferences
   SET attempts = attempts + 1, last_attempt_at = clock_timestamp()
 WHERE fixture_id IN (
        SELECT fixture_id
          FROM core.fixture_inferences
          JOIN core.fixtures USING (fixture_id)
         WHERE needs_score_verification AND league_id = ANY (%(leagues)s)
           AND (%(named)s OR last_attempt_at IS NULL
                OR (attempts < %(attempts)s AND last_attempt_at < clock_timestamp() - interval '25 minutes')
                OR last_attempt_at < clock_timestamp() - %(cooldown)s)
         ORDER BY last_attempt_at NULLS FIRST, fixture_id
         LIMIT %(limit)s
       )
RETURNING fixture_id

-- name: team_metrics
-- Figures of a team's last finished matches.
WITH last AS (
    SELECT date, key, home_team_id = %(team)s AS is_home,
           CASE WHEN home_team_id = %(team)s THEN goals.home ELSE goals.away END AS scored,
           CASE WHEN home_team_id = %(team)s THEN goals.away ELSE goals.home END AS conceded
      FROM core.fixtures,
           -- Impossible scores would overflow the sums.
           LATERAL (SELECT CASE WHEN goals_home < 1000 THEN goals_home END AS home,
                           CASE WHEN goals_away < 1000 THEN goals_away END AS away) AS goals
     WHERE %(team)s IN (home_team_id, away_team_id)
       AND status_short IN ('FT', 'AET', 'PEN')
       AND (%(league)s::bigint IS NULL OR league_id = %(league)s)
       AND (%(season)s::bigint IS NULL OR season = %(season)s)
     ORDER BY date DESC NULLS LAST, key
     LIMIT %(last)s
)
SELECT count(*) AS played,
       count(*) FILTER (WHERE scored > conceded) AS wins,
       count(*) FILTER (WHERE scored = conceded) AS draws,
       count(*) FILTER (WHERE scored < conceded) AS losses,
       coalesce(sum(scored), 0)::bigint AS "goalsFor",
       coalesce(sum(conceded), 0)::bigint AS "goalsAgainst",
       count(*) FILTER (WHERE conceded = 0) AS "cleanSheets",
       count(*) FILTER (WHERE scored = 0) AS "failedToScore",
       count(*) FILTER (WHERE is_home) AS "atHome",
       coalesce(string_agg(CASE WHEN scored > conceded THEN 'W' WHEN scored = conceded THEN 'D'
                                WHEN scored < conceded THEN 'L' ELSE '?' END, '' ORDER BY date, key), '') AS form
  FROM last

-- name: teams_due
-- Teams with a finished match that the API has had time to count since their last request, the longest
-- waiting first. Awarded matches count. All teams of a named season are due. At most `allowed` in a day.
SELECT f.league_id, f.season, side.team_id
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
 USING (league_id, season)
 CROSS JOIN LATERAL unnest(ARRAY[f.home_team_id, f.away_team_id]) AS side (team_id)
 CROSS JOIN LATERAL (
        SELECT f.changed_at + CASE WHEN football.is_news(f.changed_at, f.first_seen_at, f.date)
                                   THEN %(settling)s ELSE interval '0' END AS at
       ) AS counted
  LEFT JOIN football.season_asked AS a
    ON a.endpoint = 'teams/statistics' AND a.league_id = f.league_id
   AND a.season = f.season AND a.team_id = side.team_id
 WHERE (%(named)s OR f.status_short = ANY (%(finished)s) OR football.state_of(f.status_short) = 'not_played')
   AND side.team_id IS NOT NULL
   AND NOT EXISTS (SELECT FROM football.refusal AS r
                    WHERE r.endpoint = 'teams/statistics' AND r.league_id = f.league_id
                      AND r.season = f.season AND r.team_id = side.team_id
                      AND r.refused_at > %(refused_since)s)
   AND (%(named)s OR counted.at <= %(now)s)
   AND (%(named)s OR a.asked_at IS NULL OR (a.asked_at < counted.at AND a.asked_at < %(before)s))
 GROUP BY f.league_id, f.season, side.team_id
 ORDER BY min(a.asked_at) NULLS FIRST, f.league_id, side.team_id
 LIMIT least(%(limit)s::bigint,
             CASE WHEN %(allowed)s::bigint IS NOT NULL
                  THEN greatest(0, %(allowed)s::bigint - (SELECT count(*)
                                                            FROM football.season_asked
                                                           WHERE endpoint = 'teams/statistics'
                                                             AND asked_at > %(now)s - interval '1 day')) END)

-- name: tool_coverage
-- Coverage by season and endpoint, the lowest first.
SELECT *
  FROM mart.coverage_status
 WHERE (%(league)s::bigint IS NULL OR league_id = %(league)s)
   AND (%(season)s::bigint IS NULL OR season = %(season)s)
   AND (%(endpoint)s::text IS NULL OR endpoint = %(endpoint)s)
 ORDER BY count_coverage NULLS LAST, league_id, season DESC, endpoint

-- name: tool_coverage_summary
-- Coverage by endpoint.
SELECT endpoint, count(*) AS league_seasons,
       count(*) FILTER (WHERE count_coverage >= 100) AS complete,
       count(*) FILTER (WHERE expected_count IS NULL) AS unknown,
       coalesce(sum(expected_count), 0)::bigint AS expected_count,
       sum(actual_count)::bigint AS actual_count, min(last_update) AS oldest_update
  FROM mart.coverage_status
 WHERE %(season)s::bigint IS NULL OR season = %(season)s
 GROUP BY endpoint
 ORDER BY endpoint

-- name: tool_details
-- The number of details of a match.
SELECT (SELECT count(*) FROM core.fixture_events WHERE fixture_id = %(fixture)s) AS events,
       (SELECT count(*) FROM core.fixture_lineups WHERE fixture_id = %(fixture)s) AS lineups,
       (SELECT count(*) FROM core.fixture_statistics WHERE fixture_id = %(fixture)s) AS statistics,
       (SELECT count(*) FROM core.fixture_players WHERE fixture_id = %(fixture)s) AS players

-- name: tool_fixtures
-- Matches for all given filters, the latest first, with inferences.
SELECT f.fixture_id, f.league_id, f.body #>> '{league,name}' AS league, f.season, f.round, f.date,
       f.status_short, f.elapsed,
       f.home_team_id, f.body #>> '{teams,home,name}' AS home_team,
       f.away_team_id, f.body #>> '{teams,away,name}' AS away_team,
       f.goals_home, f.goals_away, t.told_at, t.details_at,
       i.inferred_status, coalesce(i.needs_score_verification, false) AS needs_score_verification,
       football.unconfirmed_since(f.status_short, f.date, t.told_at) AS unconfirmed_since
  FROM core.fixtures AS f
  LEFT JOIN football.fixture_told AS t USING (fixture_id)
  LEFT JOIN core.fixture_inferences AS i USING (fixture_id)
 WHERE (%(ids)s::bigint[] IS NULL OR f.fixture_id = ANY (%(ids)s))
   AND (%(league)s::bigint IS NULL OR f.league_id = %(league)s)
   AND (%(season)s::bigint IS NULL OR f.season = %(season)s)
   AND (%(team)s::bigint IS NULL OR %(team)s IN (f.home_team_id, f.away_team_id))
   AND (%(date)s::date IS NULL OR (f.date AT TIME ZONE 'UTC')::date = %(date)s)
   AND (%(status)s::text[] IS NULL OR f.status_short = ANY (%(status)s))
 ORDER BY f.date DESC NULLS LAST, f.fixture_id
 LIMIT %(limit)s

-- name: units_api
-- Everything that the API has, in one request.
SELECT jsonb_build_object() AS params, NULL::timestamptz AS news

-- name: units_season
-- The followed seasons, with the newest end or correction of a match.
SELECT jsonb_build_object('league', s.league_id::text, 'season', s.season::text) AS params,
       (SELECT max(f.changed_at)
          FROM core.fixtures AS f
         WHERE f.league_id = s.league_id AND f.season = s.season
           AND (f.status_short = ANY (%(finished)s) OR football.state_of(f.status_short) = 'not_played')) AS news
  FROM unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)

-- name: units_team
-- The teams of the followed seasons.
SELECT DISTINCT jsonb_build_object('team', side.team_id::text) AS params, NULL::timestamptz AS news
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season) USING (league_id, season)
 CROSS JOIN LATERAL unnest(ARRAY[f.home_team_id, f.away_team_id]) AS side (team_id)
 WHERE side.team_id > 0

-- name: units_player
-- The players of the followed seasons: those who played, and those in squads.
SELECT DISTINCT jsonb_build_object('player', p.player_id::text) AS params, NULL::timestamptz AS news
  FROM (SELECT d.player_id
          FROM core.fixture_players AS d
          JOIN core.fixtures AS f USING (fixture_id)
          JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
            ON s.league_id = f.league_id AND s.season = f.season
         UNION
        SELECT feed.as_integer(q.body -> 'id')
          FROM core.squads AS q
         WHERE feed.as_integer(to_jsonb(split_part(q.key, ':', 1))) IN (
               SELECT unnest(ARRAY[f.home_team_id, f.away_team_id])
                 FROM core.fixtures AS f
                 JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
                USING (league_id, season))) AS p (player_id)
 WHERE p.player_id > 0

-- name: units_fixture
-- Matches of the followed seasons that begin within a time, or ended within a time.
SELECT jsonb_build_object('fixture', f.fixture_id::text) AS params, NULL::timestamptz AS news
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season) USING (league_id, season)
 WHERE (f.date > %(now)s AND f.date <= %(now)s + %(before)s)
    OR (f.date <= %(now)s AND f.date > %(now)s - %(after)s AND f.status_short = ANY (%(finished)s))

-- name: units_pair
-- The pairs of teams that meet soon.
SELECT DISTINCT jsonb_build_object('h2h', format('%%s-%%s', least(f.home_team_id, f.away_team_id),
                                                 greatest(f.home_team_id, f.away_team_id))) AS params,
       NULL::timestamptz AS news
  FROM core.fixtures AS f
  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season) USING (league_id, season)
 WHERE f.date > %(now)s AND f.date <= %(now)s + %(before)s
   AND f.home_team_id > 0 AND f.away_team_id > 0

-- name: units_country
-- The countries of the followed leagues.
SELECT DISTINCT jsonb_build_object('country', l.country) AS params, NULL::timestamptz AS news
  FROM core.leagues AS l
 WHERE l.league_id = ANY (%(leagues)s) AND l.country <> '' AND l.country <> 'World'

-- name: units_league
-- The followed leagues with a match that may be in play.
SELECT DISTINCT jsonb_build_object('league', f.league_id::text) AS params, NULL::timestamptz AS news
  FROM core.fixtures AS f
 WHERE f.league_id = ANY (%(leagues)s)
   AND f.date BETWEEN %(now)s - interval '4 hours' AND %(now)s + interval '5 minutes'
   AND football.state_of(f.status_short) IN ('scheduled', 'live')

-- name: count_units
-- How many units there are, and how many match days the followed seasons have in the weeks around now.
SELECT (SELECT count(*) FROM ({units}) AS u) AS units,
       (SELECT count(*)
          FROM (SELECT DISTINCT f.league_id, f.season, f.date::date
                  FROM core.fixtures AS f
                  JOIN unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) AS s (league_id, season)
                 USING (league_id, season)
                 WHERE f.date BETWEEN %(now)s - interval '7 days' AND %(now)s + interval '7 days') AS d) AS match_days

-- name: due_units
-- Units that were never requested, are too old, or whose season has news that has settled since.
SELECT u.params, coalesce(c.next_page, 1)
  FROM ({units}) AS u
  LEFT JOIN football.collected AS c ON c.endpoint = %(endpoint)s AND c.params = u.params
 WHERE (c.refused_at IS NULL OR c.refused_at < %(refused_since)s)
   AND (%(named)s OR c.next_page IS NOT NULL
        OR (c.requested_at IS NULL AND (cardinality(%(settle)s::interval[]) = 0 OR u.news IS NOT NULL))
        OR c.requested_at < %(now)s - %(every)s::interval
        OR EXISTS (SELECT FROM unnest(%(settle)s::interval[]) AS later
                    WHERE u.news + later <= %(now)s AND c.requested_at < u.news + later))
 ORDER BY c.next_page IS NULL, c.requested_at NULLS FIRST, u.params
 LIMIT %(limit)s

-- name: record_collected
-- Record that a unit was requested, as far as to a page.
INSERT INTO football.collected (endpoint, params, requested_at, next_page)
VALUES (%(endpoint)s, %(params)s, CASE WHEN %(next_page)s::integer IS NULL THEN clock_timestamp() END, %(next_page)s)
    ON CONFLICT (endpoint, params) DO UPDATE
   SET requested_at = coalesce(EXCLUDED.requested_at, collected.requested_at),
       next_page = EXCLUDED.next_page

-- name: record_not_collected
-- Record that the API refused a unit.
INSERT INTO football.collected (endpoint, params, refused_at)
VALUES (%(endpoint)s, %(params)s, clock_timestamp())
    ON CONFLICT (endpoint, params) DO UPDATE SET refused_at = EXCLUDED.refused_at

-- name: record_collection
-- Record how many units an endpoint has.
INSERT INTO football.collection (endpoint, units, counted_at)
VALUES (%(endpoint)s, %(units)s, clock_timestamp())
    ON CONFLICT (endpoint) DO UPDATE SET units = EXCLUDED.units, counted_at = EXCLUDED.counted_at

-- name: restore_collected
-- Restore missing requests for optional data.
INSERT INTO football.collected (endpoint, params, requested_at)
SELECT * FROM unnest(%s::text[], %s::jsonb[], %s::timestamptz[])
    ON CONFLICT DO NOTHING

-- name: league_table
-- The table of a season after a round.
SELECT * FROM mart.league_table(%(league)s, %(season)s, %(round)s, %(stage)s)

-- name: corrections
-- Results that changed after the final whistle, the newest first.
SELECT seq, changed_at AS "changedAt", fixture_id AS "fixtureId", league_id AS "leagueId", season, home, away,
       status_before AS "statusBefore", status, home_before AS "homeBefore", away_before AS "awayBefore",
       goals_home AS "goalsHome", goals_away AS "goalsAway"
  FROM mart.corrections
 WHERE (%(league)s::bigint IS NULL OR league_id = %(league)s)
   AND (%(season)s::bigint IS NULL OR season = %(season)s)
 ORDER BY seq DESC
 LIMIT %(limit)s

-- name: top_scorers_of_season
-- The top scorers of a season as the API lists them.
SELECT player_id, body #>> '{player,name}' AS player, body #>> '{statistics,0,team,name}' AS team, goals,
       core.whole(body #> '{statistics,0,goals,assists}') AS assists
  FROM core.top_scorers
 WHERE league_id = %(league)s AND season = %(season)s
 ORDER BY goals DESC NULLS LAST, player, player_id

-- name: match_events
-- The events of a match in the order of its minutes.
SELECT elapsed, extra, type, detail, body #>> '{team,name}' AS team, body #>> '{player,name}' AS player,
       body #>> '{assist,name}' AS assist
  FROM core.fixture_events
 WHERE fixture_id = %(fixture)s
 ORDER BY elapsed NULLS LAST, extra NULLS FIRST, key
