-- What was changed from the live page: who, when, what.
CREATE TABLE changes (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL
) STRICT;
