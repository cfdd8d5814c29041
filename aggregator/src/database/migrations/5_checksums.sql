-- The checksum of each row over all of its other columns, in the order of the table. A disk that loses a bit is told when a server
-- opens the database. `row_checksum` is a function of the aggregator: other programs can read the tables, and cannot write them.

ALTER TABLE runs ADD COLUMN crc32 INTEGER;
UPDATE runs SET crc32 = row_checksum(run, directory, rounds, begun, served, process, ended, outcome, told, status);
CREATE TRIGGER runs_written AFTER INSERT ON runs BEGIN
    UPDATE runs SET crc32 = row_checksum(run, directory, rounds, begun, served, process, ended, outcome, told, status) WHERE run = NEW.run;
END;
CREATE TRIGGER runs_changed AFTER UPDATE OF run, directory, rounds, begun, served, process, ended, outcome, told, status ON runs BEGIN
    UPDATE runs SET crc32 = row_checksum(run, directory, rounds, begun, served, process, ended, outcome, told, status) WHERE run = NEW.run;
END;

ALTER TABLE rounds ADD COLUMN crc32 INTEGER;
UPDATE rounds SET crc32 = row_checksum(run, round, opened, closed, cohort, record);
CREATE TRIGGER rounds_written AFTER INSERT ON rounds BEGIN
    UPDATE rounds SET crc32 = row_checksum(run, round, opened, closed, cohort, record) WHERE run = NEW.run AND round = NEW.round;
END;
CREATE TRIGGER rounds_changed AFTER UPDATE OF run, round, opened, closed, cohort, record ON rounds BEGIN
    UPDATE rounds SET crc32 = row_checksum(run, round, opened, closed, cohort, record) WHERE run = NEW.run AND round = NEW.round;
END;

ALTER TABLE arrivals ADD COLUMN crc32 INTEGER;
UPDATE arrivals SET crc32 = row_checksum(run, round, device, verdict, at, times, reason);
CREATE TRIGGER arrivals_written AFTER INSERT ON arrivals BEGIN
    UPDATE arrivals SET crc32 = row_checksum(run, round, device, verdict, at, times, reason) WHERE run = NEW.run AND round = NEW.round AND device = NEW.device AND verdict = NEW.verdict;
END;
CREATE TRIGGER arrivals_changed AFTER UPDATE OF run, round, device, verdict, at, times, reason ON arrivals BEGIN
    UPDATE arrivals SET crc32 = row_checksum(run, round, device, verdict, at, times, reason) WHERE run = NEW.run AND round = NEW.round AND device = NEW.device AND verdict = NEW.verdict;
END;

ALTER TABLE metrics ADD COLUMN crc32 INTEGER;
UPDATE metrics SET crc32 = row_checksum(run, round, device, name, value);
CREATE TRIGGER metrics_written AFTER INSERT ON metrics BEGIN
    UPDATE metrics SET crc32 = row_checksum(run, round, device, name, value) WHERE run = NEW.run AND round = NEW.round AND device = NEW.device AND name = NEW.name;
END;
CREATE TRIGGER metrics_changed AFTER UPDATE OF run, round, device, name, value ON metrics BEGIN
    UPDATE metrics SET crc32 = row_checksum(run, round, device, name, value) WHERE run = NEW.run AND round = NEW.round AND device = NEW.device AND name = NEW.name;
END;

ALTER TABLE events ADD COLUMN crc32 INTEGER;
UPDATE events SET crc32 = row_checksum(id, run, at, alarm, text);
CREATE TRIGGER events_written AFTER INSERT ON events BEGIN
    UPDATE events SET crc32 = row_checksum(id, run, at, alarm, text) WHERE id = NEW.id;
END;
CREATE TRIGGER events_changed AFTER UPDATE OF id, run, at, alarm, text ON events BEGIN
    UPDATE events SET crc32 = row_checksum(id, run, at, alarm, text) WHERE id = NEW.id;
END;

ALTER TABLE tickets ADD COLUMN crc32 INTEGER;
UPDATE tickets SET crc32 = row_checksum(number, digest, uses, remaining, made, expires);
CREATE TRIGGER tickets_written AFTER INSERT ON tickets BEGIN
    UPDATE tickets SET crc32 = row_checksum(number, digest, uses, remaining, made, expires) WHERE number = NEW.number;
END;
CREATE TRIGGER tickets_changed AFTER UPDATE OF number, digest, uses, remaining, made, expires ON tickets BEGIN
    UPDATE tickets SET crc32 = row_checksum(number, digest, uses, remaining, made, expires) WHERE number = NEW.number;
END;

ALTER TABLE devices ADD COLUMN crc32 INTEGER;
UPDATE devices SET crc32 = row_checksum(client, key, name, standing, since, seen, address, software, samples);
CREATE TRIGGER devices_written AFTER INSERT ON devices BEGIN
    UPDATE devices SET crc32 = row_checksum(client, key, name, standing, since, seen, address, software, samples) WHERE client = NEW.client;
END;
CREATE TRIGGER devices_changed AFTER UPDATE OF client, key, name, standing, since, seen, address, software, samples ON devices BEGIN
    UPDATE devices SET crc32 = row_checksum(client, key, name, standing, since, seen, address, software, samples) WHERE client = NEW.client;
END;

ALTER TABLE listening ADD COLUMN crc32 INTEGER;
UPDATE listening SET crc32 = row_checksum(one, address);
CREATE TRIGGER listening_written AFTER INSERT ON listening BEGIN
    UPDATE listening SET crc32 = row_checksum(one, address) WHERE one = NEW.one;
END;
CREATE TRIGGER listening_changed AFTER UPDATE OF one, address ON listening BEGIN
    UPDATE listening SET crc32 = row_checksum(one, address) WHERE one = NEW.one;
END;

ALTER TABLE left_out ADD COLUMN crc32 INTEGER;
UPDATE left_out SET crc32 = row_checksum(run, device, samples);
CREATE TRIGGER left_out_written AFTER INSERT ON left_out BEGIN
    UPDATE left_out SET crc32 = row_checksum(run, device, samples) WHERE run = NEW.run AND device = NEW.device;
END;
CREATE TRIGGER left_out_changed AFTER UPDATE OF run, device, samples ON left_out BEGIN
    UPDATE left_out SET crc32 = row_checksum(run, device, samples) WHERE run = NEW.run AND device = NEW.device;
END;

ALTER TABLE changes ADD COLUMN crc32 INTEGER;
UPDATE changes SET crc32 = row_checksum(id, at, who, what);
CREATE TRIGGER changes_written AFTER INSERT ON changes BEGIN
    UPDATE changes SET crc32 = row_checksum(id, at, who, what) WHERE id = NEW.id;
END;
CREATE TRIGGER changes_changed AFTER UPDATE OF id, at, who, what ON changes BEGIN
    UPDATE changes SET crc32 = row_checksum(id, at, who, what) WHERE id = NEW.id;
END;
