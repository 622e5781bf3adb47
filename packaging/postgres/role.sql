-- The database of j17 and its role, with the least rights. On the machine of the primary, as postgres:
--
--   STORE_PASSWORD=... psql -f role.sql
--
-- The password is stored as a hash, but while log_statement is ddl or all, this statement is in the server's log with
-- it.
\set ON_ERROR_STOP on
\getenv password STORE_PASSWORD
CREATE ROLE j17 LOGIN PASSWORD :'password';
CREATE DATABASE j17 ENCODING 'UTF8' TEMPLATE template0;
REVOKE ALL ON DATABASE j17 FROM PUBLIC;
GRANT CONNECT ON DATABASE j17 TO j17;
\connect j17

-- The schema that has all tables. j17 makes, changes and drops tables in it, which only an owner may. Without a schema
-- of its own the role needs CREATE on the database, by which j17 makes the schema that --store-schema names:
--   GRANT CREATE ON DATABASE j17 TO j17;
CREATE SCHEMA j17 AUTHORIZATION j17;

-- To see whether a standby is attached that commits wait for (pg_stat_replication), what waits for what, and which
-- files of the log servers have (pg_ls_waldir). Without it j17 does not start, unless --store-allow-single is given,
-- and certificates of erasure say that nobody could look into the log.
GRANT pg_monitor TO j17;

-- To write what an erasure has rewritten to the tables' files at once (CHECKPOINT), and to begin a new file of the log,
-- so that the old ones can go. Without them an erasure waits until the server does so by itself: five minutes for the
-- one (checkpoint_timeout), as long as it takes to fill a file for the other.
GRANT pg_checkpoint TO j17;
GRANT EXECUTE ON FUNCTION pg_switch_wal() TO j17;
