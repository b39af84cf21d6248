-- The roles of Hasat on a PostgreSQL server; none is a superuser. Run it as an administrator:
--
--   psql --set owner_password=... --set reader_password=... --file deploy/postgres/roles.sql postgres
--
-- `hasat` owns the database, migrates it and does all work. `hasat_reader` may only read: for
-- reports and for HASAT_DATABASE_READ_URL, on the server itself or on a standby.
CREATE ROLE hasat LOGIN PASSWORD :'owner_password' NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION;
CREATE ROLE hasat_reader LOGIN PASSWORD :'reader_password' NOSUPERUSER NOCREATEDB NOCREATEROLE;
ALTER ROLE hasat_reader SET default_transaction_read_only = on;

CREATE DATABASE hasat OWNER hasat TEMPLATE template0 ENCODING 'UTF8';
REVOKE ALL ON DATABASE hasat FROM PUBLIC;
GRANT CONNECT ON DATABASE hasat TO hasat_reader;

\connect hasat
-- What `hasat` creates, now and in later migrations, can be read.
ALTER DEFAULT PRIVILEGES FOR ROLE hasat GRANT USAGE ON SCHEMAS TO hasat_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE hasat GRANT SELECT ON TABLES TO hasat_reader;
