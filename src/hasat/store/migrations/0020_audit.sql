-- The audit record: who did what, from where, why, when and with what outcome.
CREATE TABLE jobs.audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    token uuid NOT NULL UNIQUE,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor text NOT NULL,
    actor_kind text NOT NULL
        CHECK (actor_kind IN ('key', 'login', 'signature', 'cli', 'mcp', 'local', 'anonymous')),
    address text NOT NULL,
    action text NOT NULL,
    object text NOT NULL DEFAULT '',
    reason text,
    outcome text NOT NULL CHECK (outcome IN ('started', 'done', 'refused', 'failed')),
    detail jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE jobs.audit IS 'append-only: rows leave only through jobs.forget_audit()';
COMMENT ON COLUMN jobs.audit.token IS 'identifies the record before it has a number, so that it is written once';
COMMENT ON COLUMN jobs.audit.address IS 'remote address, or the host name for a command';
COMMENT ON COLUMN jobs.audit.action IS 'stable code such as run.queue or hold.approve';
COMMENT ON COLUMN jobs.audit.object IS 'what the action was about: a run, a key, an upstream';

CREATE FUNCTION jobs.protect_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A second condition beside the switch: no setting removes what is younger than 30 days.
    IF TG_OP = 'DELETE' AND current_setting('hasat.audit_retention', true) = 'on'
        AND OLD.at < now() - interval '30 days'
    THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'jobs.audit is append-only: % is not allowed', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER protect_rows BEFORE UPDATE OR DELETE ON jobs.audit
    FOR EACH ROW EXECUTE FUNCTION jobs.protect_audit();
CREATE TRIGGER protect_table BEFORE TRUNCATE ON jobs.audit
    FOR EACH STATEMENT EXECUTE FUNCTION jobs.protect_audit();
-- Also in a session that replays rows (session_replication_role = replica).
ALTER TABLE jobs.audit ENABLE ALWAYS TRIGGER protect_rows;
ALTER TABLE jobs.audit ENABLE ALWAYS TRIGGER protect_table;

-- The retention: delete records older than this many days, at least 30, and return their numbers.
CREATE FUNCTION jobs.forget_audit(days integer) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('hasat.audit_retention', 'on', true);
    RETURN QUERY
        DELETE FROM jobs.audit AS a
         WHERE a.at < now() - make_interval(days => greatest(days, 30))
        RETURNING a.id;
    PERFORM set_config('hasat.audit_retention', '', true);
END
$$;
