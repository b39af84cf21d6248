-- What the API refused to say (not in the plan, asked wrongly), and when: it is not asked again for a while.
CREATE TABLE football.refusal (
    endpoint   text NOT NULL,
    league_id  bigint NOT NULL,
    season     bigint NOT NULL,
    team_id    bigint NOT NULL DEFAULT 0,
    refused_at timestamptz NOT NULL,
    PRIMARY KEY (endpoint, league_id, season, team_id)
);
