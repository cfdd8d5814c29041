-- What happened in the runs that this lab's aggregator has served. Moments are milliseconds since 1970 (UTC).

CREATE TABLE runs (
    run       TEXT PRIMARY KEY,          -- its identity, 16 hexadecimal digits
    directory TEXT NOT NULL,             -- where its files are
    rounds    INTEGER NOT NULL,          -- planned rounds of training
    begun     INTEGER NOT NULL,          -- first served
    served    INTEGER NOT NULL,          -- served by the newest process since
    process   INTEGER NOT NULL,          -- that process
    ended     INTEGER,                   -- when that process stopped serving it, if it could say so
    outcome   TEXT,                      -- how it ended then: completed, stopped, fruitless, failed
    told      INTEGER NOT NULL,          -- moment of the status
    status    TEXT NOT NULL              -- what it waits for, as JSON
) STRICT, WITHOUT ROWID;

-- One row for each round that was opened; those that are closed have all figures of their line in rounds.jsonl.
CREATE TABLE rounds (
    run    TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    round  INTEGER NOT NULL,             -- from 1
    opened INTEGER,                      -- NULL: the process that opened it could not say
    closed INTEGER,                      -- NULL: it is not, or the process that closed it could not say
    cohort INTEGER,                      -- members so far
    record TEXT,                         -- its line of rounds.jsonl; NULL: it is not closed
    PRIMARY KEY (run, round)
) STRICT, WITHOUT ROWID;

-- What became of the members of a round's cohort, and of what others sent.
CREATE TABLE arrivals (
    run     TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    round   INTEGER NOT NULL,
    device  TEXT NOT NULL,               -- 32 hexadecimal digits
    verdict TEXT NOT NULL,               -- accepted, rejected, discarded, failed, not-now
    at      INTEGER,                     -- when last; NULL: the process that took it could not say
    times   INTEGER NOT NULL,            -- how often; an update is accepted once
    reason  TEXT,                        -- the last one
    PRIMARY KEY (run, round, device, verdict)
) STRICT, WITHOUT ROWID;

-- Numbers of closed rounds: of the global model (device is empty), and what devices measured.
CREATE TABLE metrics (
    run    TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    round  INTEGER NOT NULL,
    device TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  REAL NOT NULL,
    PRIMARY KEY (run, round, device, name)
) STRICT, WITHOUT ROWID;

-- What an operator was told; the newest ones of each run.
CREATE TABLE events (
    id    INTEGER PRIMARY KEY,
    run   TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    at    INTEGER NOT NULL,
    alarm INTEGER NOT NULL,              -- 1: something is wrong unless somebody does something
    text  TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_run ON events (run, id);
