CREATE TABLE tickets (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    -- SHA-256 of the secret, which is nowhere here
    digest BLOB NOT NULL UNIQUE,
    uses INTEGER NOT NULL,
    remaining INTEGER NOT NULL,
    made INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT;

CREATE TABLE devices (
    client BLOB PRIMARY KEY,
    key BLOB NOT NULL,
    name TEXT UNIQUE,
    standing TEXT NOT NULL CHECK (standing IN ('in', 'waiting', 'revoked')),
    since INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    -- as of then
    address TEXT,
    software TEXT,
    samples INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE listening (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    address TEXT NOT NULL
) STRICT;
