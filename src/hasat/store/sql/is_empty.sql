-- Whether nobody has created anything here yet.
SELECT NOT EXISTS (
    SELECT
    FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
      AND nspname <> 'information_schema' AND nspname NOT LIKE 'pg\_%'
)
