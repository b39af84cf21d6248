-- The types of declared columns: a value out of a body, or null where it cannot be of that type. An
-- upstream may write anything; what it writes must never stop a commit, so none of these raises.

-- A part of a key as a value; to_jsonb of a text depends on no setting, although it is only STABLE.
CREATE FUNCTION feed.key_part(key text, separator text, place integer) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT to_jsonb(split_part(key, separator, place))
$$;

-- Texts, and numbers and booleans as text; null for what is nested.
CREATE FUNCTION feed.as_text(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN jsonb_typeof(value) IN ('string', 'number', 'boolean') THEN value #>> '{}' END
$$;

-- Whole numbers of up to 18 digits, also as text.
CREATE FUNCTION feed.as_integer(value jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN jsonb_typeof(value) = 'number' THEN
            CASE WHEN abs(value::numeric) < 1e18 AND value::numeric = trunc(value::numeric)
                 THEN value::numeric::bigint END
        WHEN jsonb_typeof(value) = 'string' AND value #>> '{}' ~ '^[+-]?[0-9]{1,18}$'
            THEN (value #>> '{}')::bigint
    END
$$;

-- Numbers within double precision, also as text with a decimal point.
CREATE FUNCTION feed.as_number(value jsonb) RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN jsonb_typeof(value) = 'number' THEN
            CASE WHEN abs(value::numeric) < 1e-300 THEN 0
                 WHEN abs(value::numeric) < 1e308 THEN value::numeric::double precision END
        WHEN jsonb_typeof(value) = 'string'
             AND value #>> '{}' ~ '^[+-]?[0-9]{1,40}([.][0-9]{1,40})?([eE][+-]?[0-9]{1,2})?$'
            THEN (value #>> '{}')::double precision
    END
$$;

CREATE FUNCTION feed.as_boolean(value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE lower(value #>> '{}' COLLATE "C") WHEN 'true' THEN true WHEN 'false' THEN false END
$$;

-- A day of the calendar, or null.
CREATE FUNCTION feed.day_of(year integer, month integer, day integer) RETURNS date
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN year BETWEEN 1 AND 9999 AND month BETWEEN 1 AND 12 AND day BETWEEN 1 AND
             CASE WHEN month IN (4, 6, 9, 11) THEN 30
                  WHEN month <> 2 THEN 31
                  WHEN year % 4 = 0 AND (year % 100 <> 0 OR year % 400 = 0) THEN 29
                  ELSE 28 END
            THEN make_date(year, month, day)
    END
$$;

-- The day that a text such as 2026-11-18 or 2026-11-18T09:00:00 begins with.
CREATE FUNCTION feed.as_date(value jsonb) RETURNS date LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN jsonb_typeof(value) = 'string' AND value #>> '{}' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}($|[T ])'
            THEN feed.day_of(substr(value #>> '{}', 1, 4)::integer, substr(value #>> '{}', 6, 2)::integer,
                             substr(value #>> '{}', 9, 2)::integer)
    END
$$;

-- A moment: seconds since 1970, or a text of ISO 8601. `zone` holds for a text without a zone.
CREATE FUNCTION feed.as_timestamp(value jsonb, zone text) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    seconds double precision;
    parts   text[];
    local   timestamp;
    shift   integer;
BEGIN
    IF jsonb_typeof(value) = 'number' THEN
        seconds := feed.as_number(value);
        RETURN CASE WHEN seconds BETWEEN -62135510400 AND 253370764800 THEN to_timestamp(seconds) END;
    END IF;
    IF jsonb_typeof(value) IS DISTINCT FROM 'string' THEN
        RETURN NULL;
    END IF;
    parts := regexp_match(value #>> '{}',
        '^([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2}(?:[.][0-9]{1,9})?))?)?'
        ' ?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?$');
    IF parts IS NULL OR feed.as_date(to_jsonb(parts[1])) IS NULL
       OR parts[2]::integer > 23 OR parts[3]::integer > 59 OR parts[4]::double precision >= 60 THEN
        RETURN NULL;
    END IF;
    local := feed.as_date(to_jsonb(parts[1]))
        + make_interval(hours => coalesce(parts[2], '0')::integer, mins => coalesce(parts[3], '0')::integer,
                        secs => coalesce(parts[4], '0')::double precision);
    -- As for seconds: in every zone a moment of the years that programs can read.
    IF local NOT BETWEEN '0001-01-03' AND '9999-01-01' THEN
        RETURN NULL;
    END IF;
    IF parts[5] IS NULL THEN
        RETURN local AT TIME ZONE zone;
    END IF;
    shift := CASE WHEN parts[5] = 'Z' THEN 0
                  ELSE (left(parts[5], 1) || '1')::integer
                       * (substr(parts[5], 2, 2)::integer * 60
                          + coalesce(nullif(right(replace(parts[5], ':', ''), -3), ''), '0')::integer) END;
    RETURN (local - make_interval(mins => shift)) AT TIME ZONE 'UTC';
END
$$;
