-- Forget requests and days past their keep; the last eight days are what is learned from.
WITH old_requests AS (
    DELETE FROM budget.request WHERE at < budget.now() - make_interval(days => %(request_days)s)
), old_usage AS (
    DELETE FROM budget.usage WHERE day < budget.now()::date - %(usage_days)s::integer
), old_endpoint_days AS (
    DELETE FROM budget.endpoint_day WHERE day < budget.now()::date - %(usage_days)s::integer
)
DELETE FROM budget.day WHERE day < budget.now()::date - %(usage_days)s::integer;
