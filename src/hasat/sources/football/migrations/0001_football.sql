-- API-Football: answers as they came, and the mirror made of them.

-- One row a distinct answer: the same body to the same question again only moves `last_fetched_at`.
CREATE TABLE raw.api_responses (
    id               bigint GENERATED ALWAYS AS IDENTITY,
    endpoint         text NOT NULL,
    requested_params jsonb NOT NULL,
    status_code      integer NOT NULL,
    response_headers jsonb NOT NULL,
    body             jsonb NOT NULL,
    errors           jsonb NOT NULL,
    results          integer NOT NULL,
    fetched_at       timestamptz NOT NULL,
    last_fetched_at  timestamptz NOT NULL,
    times            integer NOT NULL DEFAULT 1,
    request_hash     bytea NOT NULL,
    body_hash        bytea NOT NULL,
    run              bigint,
    PRIMARY KEY (id, fetched_at)
) PARTITION BY RANGE (fetched_at);
CREATE INDEX api_responses_request ON raw.api_responses (request_hash, fetched_at DESC);
CREATE INDEX api_responses_endpoint ON raw.api_responses (endpoint, fetched_at);

-- A month's partition, made when the first answer of that month is kept.
CREATE FUNCTION raw.ensure_month(moment timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    start date := date_trunc('month', moment AT TIME ZONE 'UTC');
    name  text := 'api_responses_' || to_char(start, 'YYYY_MM');
BEGIN
    IF to_regclass('raw.' || name) IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('raw.' || name));
        EXECUTE format(
            'CREATE TABLE IF NOT EXISTS raw.%I PARTITION OF raw.api_responses FOR VALUES FROM (%L) TO (%L)',
            name, start || ' 00:00:00+00', (start + interval '1 month')::date || ' 00:00:00+00');
    END IF;
END
$$;

-- A whole number out of JSON, or nothing: what an upstream writes must never stop a commit.
CREATE FUNCTION core.whole(value jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_typeof(value) = 'number' AND abs(value::numeric) < 1e18
                THEN trunc(value::numeric)::bigint END
$$;

CREATE TABLE core.timezones (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT timezones_pkey PRIMARY KEY (key),
    name text GENERATED ALWAYS AS (body #>> '{}') STORED
);

CREATE TABLE core.countries (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT countries_pkey PRIMARY KEY (key),
    name text GENERATED ALWAYS AS (body ->> 'name') STORED,
    code text GENERATED ALWAYS AS (body ->> 'code') STORED
);

CREATE TABLE core.leagues (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT leagues_pkey PRIMARY KEY (key),
    league_id bigint GENERATED ALWAYS AS (core.whole(body #> '{league,id}')) STORED,
    name      text GENERATED ALWAYS AS (body #>> '{league,name}') STORED,
    type      text GENERATED ALWAYS AS (body #>> '{league,type}') STORED,
    country   text GENERATED ALWAYS AS (body #>> '{country,name}') STORED,
    seasons   jsonb GENERATED ALWAYS AS (body -> 'seasons') STORED
);
CREATE INDEX leagues_league ON core.leagues (league_id);

CREATE TABLE core.teams (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT teams_pkey PRIMARY KEY (key),
    team_id  bigint GENERATED ALWAYS AS (core.whole(body #> '{team,id}')) STORED,
    name     text GENERATED ALWAYS AS (body #>> '{team,name}') STORED,
    country  text GENERATED ALWAYS AS (body #>> '{team,country}') STORED,
    venue_id bigint GENERATED ALWAYS AS (core.whole(body #> '{venue,id}')) STORED
);
CREATE INDEX teams_team ON core.teams (team_id);

CREATE TABLE core.fixtures (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT fixtures_pkey PRIMARY KEY (key),
    fixture_id   bigint GENERATED ALWAYS AS (core.whole(body #> '{fixture,id}')) STORED,
    league_id    bigint GENERATED ALWAYS AS (core.whole(body #> '{league,id}')) STORED,
    season       bigint GENERATED ALWAYS AS (core.whole(body #> '{league,season}')) STORED,
    round        text GENERATED ALWAYS AS (body #>> '{league,round}') STORED,
    date         timestamptz GENERATED ALWAYS AS (to_timestamp(core.whole(body #> '{fixture,timestamp}')::double precision)) STORED,
    status_short text GENERATED ALWAYS AS (body #>> '{fixture,status,short}') STORED,
    elapsed      bigint GENERATED ALWAYS AS (core.whole(body #> '{fixture,status,elapsed}')) STORED,
    home_team_id bigint GENERATED ALWAYS AS (core.whole(body #> '{teams,home,id}')) STORED,
    away_team_id bigint GENERATED ALWAYS AS (core.whole(body #> '{teams,away,id}')) STORED,
    goals_home   bigint GENERATED ALWAYS AS (core.whole(body #> '{goals,home}')) STORED,
    goals_away   bigint GENERATED ALWAYS AS (core.whole(body #> '{goals,away}')) STORED,
    score        jsonb GENERATED ALWAYS AS (body -> 'score') STORED
);
CREATE INDEX fixtures_fixture ON core.fixtures (fixture_id);
CREATE INDEX fixtures_league_season ON core.fixtures (league_id, season, date);
CREATE INDEX fixtures_date ON core.fixtures (date);
CREATE INDEX fixtures_status ON core.fixtures (status_short, date);
CREATE INDEX fixtures_home ON core.fixtures (home_team_id, date);
CREATE INDEX fixtures_away ON core.fixtures (away_team_id, date);

CREATE TABLE core.fixture_events (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT fixture_events_pkey PRIMARY KEY (key),
    fixture_id bigint GENERATED ALWAYS AS (split_part(key, ':', 1)::bigint) STORED,
    elapsed    bigint GENERATED ALWAYS AS (core.whole(body #> '{time,elapsed}')) STORED,
    extra      bigint GENERATED ALWAYS AS (core.whole(body #> '{time,extra}')) STORED,
    team_id    bigint GENERATED ALWAYS AS (core.whole(body #> '{team,id}')) STORED,
    player_id  bigint GENERATED ALWAYS AS (core.whole(body #> '{player,id}')) STORED,
    type       text GENERATED ALWAYS AS (body ->> 'type') STORED,
    detail     text GENERATED ALWAYS AS (body ->> 'detail') STORED
);
CREATE INDEX fixture_events_fixture ON core.fixture_events (fixture_id);

CREATE TABLE core.fixture_lineups (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT fixture_lineups_pkey PRIMARY KEY (key),
    fixture_id bigint GENERATED ALWAYS AS (split_part(key, ':', 1)::bigint) STORED,
    team_id    bigint GENERATED ALWAYS AS (core.whole(body #> '{team,id}')) STORED,
    formation  text GENERATED ALWAYS AS (body ->> 'formation') STORED
);
CREATE INDEX fixture_lineups_fixture ON core.fixture_lineups (fixture_id);

CREATE TABLE core.fixture_statistics (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT fixture_statistics_pkey PRIMARY KEY (key),
    fixture_id bigint GENERATED ALWAYS AS (split_part(key, ':', 1)::bigint) STORED,
    team_id    bigint GENERATED ALWAYS AS (core.whole(body #> '{team,id}')) STORED
);
CREATE INDEX fixture_statistics_fixture ON core.fixture_statistics (fixture_id);

CREATE TABLE core.fixture_players (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT fixture_players_pkey PRIMARY KEY (key),
    fixture_id bigint GENERATED ALWAYS AS (split_part(key, ':', 1)::bigint) STORED,
    team_id    bigint GENERATED ALWAYS AS (split_part(key, ':', 2)::bigint) STORED,
    player_id  bigint GENERATED ALWAYS AS (core.whole(body #> '{player,id}')) STORED,
    name       text GENERATED ALWAYS AS (body #>> '{player,name}') STORED
);
CREATE INDEX fixture_players_fixture ON core.fixture_players (fixture_id);
CREATE INDEX fixture_players_player ON core.fixture_players (player_id);

CREATE TABLE core.standings (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT standings_pkey PRIMARY KEY (key),
    league_id  bigint GENERATED ALWAYS AS (split_part(key, ':', 1)::bigint) STORED,
    season     bigint GENERATED ALWAYS AS (split_part(key, ':', 2)::bigint) STORED,
    group_name text GENERATED ALWAYS AS (body ->> 'group') STORED,
    rank       bigint GENERATED ALWAYS AS (core.whole(body -> 'rank')) STORED,
    team_id    bigint GENERATED ALWAYS AS (core.whole(body #> '{team,id}')) STORED,
    points     bigint GENERATED ALWAYS AS (core.whole(body -> 'points')) STORED
);
CREATE INDEX standings_league_season ON core.standings (league_id, season);

CREATE TABLE core.injuries (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT injuries_pkey PRIMARY KEY (key),
    fixture_id   bigint GENERATED ALWAYS AS (core.whole(body #> '{fixture,id}')) STORED,
    fixture_date date GENERATED ALWAYS AS ((to_timestamp(core.whole(body #> '{fixture,timestamp}')::double precision) AT TIME ZONE 'UTC')::date) STORED,
    league_id    bigint GENERATED ALWAYS AS (core.whole(body #> '{league,id}')) STORED,
    season       bigint GENERATED ALWAYS AS (core.whole(body #> '{league,season}')) STORED,
    team_id      bigint GENERATED ALWAYS AS (core.whole(body #> '{team,id}')) STORED,
    player_id    bigint GENERATED ALWAYS AS (core.whole(body #> '{player,id}')) STORED,
    type         text GENERATED ALWAYS AS (body #>> '{player,type}') STORED,
    reason       text GENERATED ALWAYS AS (body #>> '{player,reason}') STORED
);
CREATE INDEX injuries_fixture ON core.injuries (fixture_id);
CREATE INDEX injuries_fixture_date ON core.injuries (fixture_date);
CREATE INDEX injuries_league_season ON core.injuries (league_id, season);

CREATE TABLE core.top_scorers (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT top_scorers_pkey PRIMARY KEY (key),
    league_id bigint GENERATED ALWAYS AS (split_part(key, ':', 1)::bigint) STORED,
    season    bigint GENERATED ALWAYS AS (split_part(key, ':', 2)::bigint) STORED,
    player_id bigint GENERATED ALWAYS AS (core.whole(body #> '{player,id}')) STORED,
    team_id   bigint GENERATED ALWAYS AS (core.whole(body #> '{statistics,0,team,id}')) STORED,
    goals     bigint GENERATED ALWAYS AS (core.whole(body #> '{statistics,0,goals,total}')) STORED
);
CREATE INDEX top_scorers_league_season ON core.top_scorers (league_id, season);

CREATE TABLE core.team_statistics (
    LIKE feed.record INCLUDING ALL,
    CONSTRAINT team_statistics_pkey PRIMARY KEY (key),
    league_id bigint GENERATED ALWAYS AS (core.whole(body #> '{league,id}')) STORED,
    season    bigint GENERATED ALWAYS AS (core.whole(body #> '{league,season}')) STORED,
    team_id   bigint GENERATED ALWAYS AS (core.whole(body #> '{team,id}')) STORED,
    form      text GENERATED ALWAYS AS (body ->> 'form') STORED
);
CREATE INDEX team_statistics_league_season ON core.team_statistics (league_id, season);
