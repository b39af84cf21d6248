-- Receipts: signed statements of what was asked, what the answer was and which version it was read from.

-- The public keys that receipts were signed with. The private keys are never in the database.
CREATE TABLE serve.receipt_key (
    kid        text PRIMARY KEY,
    public_key bytea NOT NULL CHECK (octet_length(public_key) = 32),
    added_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE serve.receipt (
    number     bigint PRIMARY KEY,
    id         uuid NOT NULL UNIQUE,
    identifier text NOT NULL,
    datasets   text[] NOT NULL,
    owner      text NOT NULL,
    kid        text NOT NULL REFERENCES serve.receipt_key,
    issued_at  timestamptz NOT NULL,
    jws        text NOT NULL,
    hash       bytea NOT NULL CHECK (octet_length(hash) = 32)
);
CREATE INDEX receipt_identifier ON serve.receipt (identifier, number);
CREATE INDEX receipt_owner ON serve.receipt (owner, number);
COMMENT ON TABLE serve.receipt IS 'append-only: rows leave only through serve.forget_receipts()';
COMMENT ON COLUMN serve.receipt.number IS 'dense; the signed header of each receipt has the hash of the one before';
COMMENT ON COLUMN serve.receipt.owner IS 'the caller that asked, who may read it again';
COMMENT ON COLUMN serve.receipt.hash IS 'SHA-256 of jws';

-- The ends of the chain, one row: whoever holds its lock appends. The hash at the floor is that of the
-- newest receipt that has expired, so that the rest can still be verified.
CREATE TABLE serve.receipt_chain (
    single     boolean PRIMARY KEY DEFAULT true CHECK (single),
    number     bigint NOT NULL,
    hash       bytea NOT NULL,
    floor      bigint NOT NULL,
    floor_hash bytea NOT NULL
);
INSERT INTO serve.receipt_chain (number, hash, floor, floor_hash)
VALUES (0, decode(repeat('00', 32), 'hex'), 0, decode(repeat('00', 32), 'hex'));

CREATE FUNCTION serve.protect_receipts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A second condition beside the switch: no setting removes what is younger than 30 days.
    IF TG_OP = 'DELETE' AND current_setting('hasat.receipt_retention', true) = 'on'
        AND OLD.issued_at < now() - interval '30 days'
    THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'serve.receipt is append-only: % is not allowed', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER protect_rows BEFORE UPDATE OR DELETE ON serve.receipt
    FOR EACH ROW EXECUTE FUNCTION serve.protect_receipts();
CREATE TRIGGER protect_table BEFORE TRUNCATE ON serve.receipt
    FOR EACH STATEMENT EXECUTE FUNCTION serve.protect_receipts();
-- Also in a session that replays rows (session_replication_role = replica).
ALTER TABLE serve.receipt ENABLE ALWAYS TRIGGER protect_rows;
ALTER TABLE serve.receipt ENABLE ALWAYS TRIGGER protect_table;

-- The retention: delete the oldest receipts up to the first that is younger, at least 30 days, move the
-- floor of the chain with them, and return their number.
CREATE FUNCTION serve.forget_receipts(keep interval) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    chain    serve.receipt_chain;
    new_floor bigint;
BEGIN
    SELECT * INTO STRICT chain FROM serve.receipt_chain FOR UPDATE;
    SELECT coalesce(min(r.number) - 1, chain.number) INTO new_floor
      FROM serve.receipt AS r
     WHERE r.issued_at >= now() - greatest(keep, interval '30 days');
    IF new_floor <= chain.floor THEN
        RETURN 0;
    END IF;
    UPDATE serve.receipt_chain
       SET floor = new_floor,
           floor_hash = (SELECT r.hash FROM serve.receipt AS r WHERE r.number = new_floor);
    PERFORM set_config('hasat.receipt_retention', 'on', true);
    DELETE FROM serve.receipt AS r WHERE r.number <= new_floor;
    PERFORM set_config('hasat.receipt_retention', '', true);
    RETURN new_floor - chain.floor;
END
$$;
