-- What the server tells of this database.
SELECT pg_database_size(datid) AS bytes,
    numbackends::bigint AS connections,
    current_setting('max_connections')::bigint AS connections_max,
    xact_commit + xact_rollback AS operations
FROM pg_stat_database
WHERE datname = current_database()
