-- Columns and a view that the checks and dashboards of the original collector use.

ALTER TABLE core.backfill_progress ADD COLUMN job_id text GENERATED ALWAYS AS (job) STORED;
COMMENT ON COLUMN core.backfill_progress.job_id IS 'the name of the column in the original collector';

ALTER TABLE core.leagues ADD COLUMN id bigint GENERATED ALWAYS AS (core.whole(body #> '{league,id}')) STORED;
COMMENT ON COLUMN core.leagues.id IS 'the name of the column in the original collector';

-- raw.api_responses stores equal responses once, so its rows do not count requests; the ledger does.
CREATE VIEW mart.request_rate AS
SELECT date_trunc('minute', at) AS minute, count(*) AS requests,
       count(*) FILTER (WHERE outcome = 'ok') AS ok
  FROM budget.request
 WHERE upstream = 'football'
 GROUP BY 1;
COMMENT ON VIEW mart.request_rate IS 'Requests to API-Football by minute; raw.api_responses stores equal responses once.';
