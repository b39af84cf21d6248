-- What a team's last finished matches come to.
WITH last AS (
    SELECT date, key, home_team_id = %(team)s AS is_home,
           CASE WHEN home_team_id = %(team)s THEN goals.home ELSE goals.away END AS scored,
           CASE WHEN home_team_id = %(team)s THEN goals.away ELSE goals.home END AS conceded
      FROM core.fixtures,
           -- What no match ends with would be too large to add up.
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
