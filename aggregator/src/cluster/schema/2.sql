-- The version of the tables. From here on `federation_schema` says from which version on a program can work with them.
CREATE TABLE federation_tables (one boolean PRIMARY KEY DEFAULT true CHECK (one), version bigint NOT NULL);
INSERT INTO federation_tables (version) VALUES (2);

-- A lab: the servers that devices know by one key. A transaction that changes its register locks this row and raises the revision by one, so that
-- what was read with a revision is all up to it.
CREATE TABLE register_labs (
    lab bytea PRIMARY KEY,
    -- Drawn when the row is made: a register that was lost and begun anew is another one.
    instance bytea NOT NULL,
    revision bigint NOT NULL DEFAULT 0,
    -- The greatest revision of a row that was deleted. A server that has not got so far reads all.
    purged bigint NOT NULL DEFAULT 0
);

-- A device. One that was removed keeps its row, so that all servers hear of it.
CREATE TABLE register_devices (
    lab bytea NOT NULL REFERENCES register_labs (lab) ON DELETE CASCADE,
    client bytea NOT NULL,
    key bytea NOT NULL,
    name text,
    standing text NOT NULL CHECK (standing IN ('in', 'waiting', 'revoked', 'removed')),
    since bigint NOT NULL,
    -- The revision with which it got its standing, and that with which anything of it changed.
    stood bigint NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (lab, client)
);
CREATE INDEX register_devices_by_revision ON register_devices (lab, revision);

-- A ticket, by the digest of its secret.
CREATE TABLE register_tickets (
    lab bytea NOT NULL REFERENCES register_labs (lab) ON DELETE CASCADE,
    digest bytea NOT NULL,
    uses bigint NOT NULL,
    remaining bigint NOT NULL,
    made bigint NOT NULL,
    expires bigint NOT NULL,
    withdrawn boolean NOT NULL DEFAULT false,
    revision bigint NOT NULL,
    PRIMARY KEY (lab, digest)
);
CREATE INDEX register_tickets_by_revision ON register_tickets (lab, revision);
