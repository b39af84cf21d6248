-- After new rules: what each lane must leave for the lanes above it, from today's point of view.
UPDATE budget.upstream u
SET promised = budget.promised(u, (budget.now() AT TIME ZONE u.zone)::date)
WHERE u.name = %(name)s;
