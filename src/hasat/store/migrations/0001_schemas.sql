-- The rooms of the database.
CREATE SCHEMA IF NOT EXISTS raw;     -- what upstreams said, verbatim
CREATE SCHEMA IF NOT EXISTS core;    -- the mirror
CREATE SCHEMA IF NOT EXISTS mart;    -- what is derived from it
CREATE SCHEMA IF NOT EXISTS feed;    -- heads, changes, archives
CREATE SCHEMA IF NOT EXISTS budget;  -- grants and the ledger of requests
CREATE SCHEMA IF NOT EXISTS jobs;    -- runs
CREATE SCHEMA IF NOT EXISTS serve;   -- who may ask
