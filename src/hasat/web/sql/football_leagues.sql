-- The followed seasons: what /leagues says of them, and what of it is here.
SELECT s.league_id, s.season, l.name, l.country, listed.covered,
       coalesce(f.matches, 0) AS matches, counted.matches AS expected, coalesce(f.finished, 0) AS finished,
       coalesce(f.detailed, 0) AS detailed, coalesce(f.inferred, 0) AS inferred,
       EXISTS (SELECT FROM core.standings AS x WHERE (x.league_id, x.season) = (s.league_id, s.season)) AS standings,
       EXISTS (SELECT FROM core.injuries AS x WHERE (x.league_id, x.season) = (s.league_id, s.season)) AS injuries,
       EXISTS (SELECT FROM core.top_scorers AS x WHERE (x.league_id, x.season) = (s.league_id, s.season)) AS top_scorers,
       EXISTS (SELECT FROM core.team_statistics AS x WHERE (x.league_id, x.season) = (s.league_id, s.season)) AS team_statistics
  FROM unnest(%(leagues)s::bigint[], %(seasons)s::bigint[]) WITH ORDINALITY AS s (league_id, season, no)
  LEFT JOIN core.leagues AS l ON l.league_id = s.league_id
  LEFT JOIN LATERAL (
       SELECT jsonb_object_agg(c.endpoint, c.covered) AS covered
         FROM mart.season_coverage AS c
        WHERE c.league_id = s.league_id AND c.season = s.season
       ) AS listed ON true
  LEFT JOIN LATERAL (
       SELECT count(*) AS matches,
              count(*) FILTER (WHERE x.status_short IN ('FT', 'AET', 'PEN')) AS finished,
              count(*) FILTER (WHERE x.status_short IN ('FT', 'AET', 'PEN')
                                 AND t.details_at >= x.changed_at - interval '1 minute') AS detailed,
              count(i.fixture_id) AS inferred
         FROM core.fixtures AS x
         LEFT JOIN football.fixture_told AS t ON t.fixture_id = x.fixture_id
         LEFT JOIN core.fixture_inferences AS i ON i.fixture_id = x.fixture_id
        WHERE x.league_id = s.league_id AND x.season = s.season
       ) AS f ON true
  LEFT JOIN football.season_listed AS counted ON counted.league_id = s.league_id AND counted.season = s.season
 ORDER BY s.no
