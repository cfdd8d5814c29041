-- Where several servers of a lab share their registers over a store: what they agreed on last. What `devices` and `tickets` say otherwise
-- was changed here, and is to go to the store.

-- The store that `agreed_devices` and `agreed_tickets` are of, and up to which revision of it they are.
CREATE TABLE agreed_store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    lab BLOB NOT NULL,
    instance BLOB NOT NULL,
    revision INTEGER NOT NULL,
    crc32 INTEGER
) STRICT;
CREATE TRIGGER agreed_store_written AFTER INSERT ON agreed_store BEGIN
    UPDATE agreed_store SET crc32 = row_checksum(one, lab, instance, revision) WHERE one = NEW.one;
END;
CREATE TRIGGER agreed_store_changed AFTER UPDATE OF one, lab, instance, revision ON agreed_store BEGIN
    UPDATE agreed_store SET crc32 = row_checksum(one, lab, instance, revision) WHERE one = NEW.one;
END;

-- What the lab's servers agreed on of a device last, and the revision of that.
CREATE TABLE agreed_devices (
    client BLOB PRIMARY KEY,
    name TEXT,
    standing TEXT NOT NULL CHECK (standing IN ('in', 'waiting', 'revoked', 'removed')),
    revision INTEGER NOT NULL,
    crc32 INTEGER
) STRICT, WITHOUT ROWID;
CREATE TRIGGER agreed_devices_written AFTER INSERT ON agreed_devices BEGIN
    UPDATE agreed_devices SET crc32 = row_checksum(client, name, standing, revision) WHERE client = NEW.client;
END;
CREATE TRIGGER agreed_devices_changed AFTER UPDATE OF client, name, standing, revision ON agreed_devices BEGIN
    UPDATE agreed_devices SET crc32 = row_checksum(client, name, standing, revision) WHERE client = NEW.client;
END;

-- The same of a ticket.
CREATE TABLE agreed_tickets (
    digest BLOB PRIMARY KEY,
    remaining INTEGER NOT NULL,
    withdrawn INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    crc32 INTEGER
) STRICT, WITHOUT ROWID;
CREATE TRIGGER agreed_tickets_written AFTER INSERT ON agreed_tickets BEGIN
    UPDATE agreed_tickets SET crc32 = row_checksum(digest, remaining, withdrawn, revision) WHERE digest = NEW.digest;
END;
CREATE TRIGGER agreed_tickets_changed AFTER UPDATE OF digest, remaining, withdrawn, revision ON agreed_tickets BEGIN
    UPDATE agreed_tickets SET crc32 = row_checksum(digest, remaining, withdrawn, revision) WHERE digest = NEW.digest;
END;
