-- A server that has the connections of some of the devices of a run that is served. Whoever works on the run is one of them.
CREATE TABLE leaves (
    experiment bytea NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
    leaf text NOT NULL,
    address text NOT NULL,
    expires timestamptz NOT NULL,
    PRIMARY KEY (experiment, leaf)
);
