-- Views are for reading. A simple one would pass a DELETE on to its table, and changes would be gone
-- without the floor having moved.

CREATE FUNCTION core.reject_write() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the view %.% is read-only', quote_ident(TG_TABLE_SCHEMA), quote_ident(TG_TABLE_NAME)
          USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'Runs of Hasat write what it shows, and retention deletes what has expired.',
                HINT = 'Copy the rows into a table of your own to change them.';
END
$$;

-- A statement that meets no row is rejected by the second trigger, which fires because of the first.
CREATE FUNCTION core.make_read_only(view regclass) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER read_only INSTEAD OF INSERT OR UPDATE OR DELETE ON %s '
                   'FOR EACH ROW EXECUTE FUNCTION core.reject_write()', view);
    EXECUTE format('CREATE OR REPLACE TRIGGER read_only_statement BEFORE INSERT OR UPDATE OR DELETE ON %s '
                   'FOR EACH STATEMENT EXECUTE FUNCTION core.reject_write()', view);
END
$$;
