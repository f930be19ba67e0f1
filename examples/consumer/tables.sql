-- What a centre keeps of what gateways publish: the best result of each window, and all late records. For SQLite from
-- 3.31; what differs in PostgreSQL is in docs/wire.md. Times are milliseconds since the epoch.

CREATE TABLE IF NOT EXISTS device_result (
    gateway     TEXT NOT NULL,
    window_name TEXT NOT NULL,
    region      TEXT NOT NULL,
    device      TEXT NOT NULL,
    start       INTEGER NOT NULL,
    generation  TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    partial     INTEGER NOT NULL,   -- 1: lacks what was heard before this generation
    samples     INTEGER NOT NULL,
    coverage    REAL,
    clock       TEXT,
    metrics     TEXT NOT NULL,      -- JSON, by name
    PRIMARY KEY (gateway, window_name, region, device, start)
);

CREATE TABLE IF NOT EXISTS region_result (
    gateway     TEXT NOT NULL,
    window_name TEXT NOT NULL,
    region      TEXT NOT NULL,
    start       INTEGER NOT NULL,
    generation  TEXT NOT NULL,
    revision    INTEGER NOT NULL,
    partial     INTEGER NOT NULL,
    samples     INTEGER NOT NULL,
    reporting   INTEGER NOT NULL,
    devices     INTEGER NOT NULL,
    metrics     TEXT NOT NULL,
    PRIMARY KEY (gateway, window_name, region, start)
);

CREATE TABLE IF NOT EXISTS late_record (
    gateway    TEXT NOT NULL,
    region     TEXT NOT NULL,
    device     TEXT NOT NULL,
    time       INTEGER NOT NULL,
    generation TEXT NOT NULL,
    body       TEXT NOT NULL,       -- the whole message
    PRIMARY KEY (gateway, region, device, time, generation, body)
);

-- One row for each metric of each result.
CREATE VIEW IF NOT EXISTS device_metric AS
SELECT gateway, window_name, region, device, start, partial, metric.key AS metric,
       coalesce(json_extract(metric.value, '$.count'), samples) AS count,
       json_extract(metric.value, '$.mean') AS mean,
       json_extract(metric.value, '$.min') AS min,
       json_extract(metric.value, '$.max') AS max,
       json_extract(metric.value, '$.first') AS first,
       json_extract(metric.value, '$.last') AS last
FROM device_result, json_each(metrics) AS metric;
