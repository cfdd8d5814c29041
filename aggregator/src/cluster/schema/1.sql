-- An experiment: the same for all whose runs have the same configurations.
CREATE TABLE experiments (
    id bytea PRIMARY KEY,
    name text NOT NULL,
    form text NOT NULL,
    created timestamptz NOT NULL DEFAULT now()
);

-- A run of it. Whoever works on it has raised the epoch and writes under it until the lease expires.
CREATE TABLE experiment_runs (
    experiment bytea NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,
    name text NOT NULL,
    position integer NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    rounds integer NOT NULL DEFAULT 0,
    arithmetic text,
    worker text,
    epoch bigint NOT NULL DEFAULT 0,
    expires timestamptz,
    PRIMARY KEY (experiment, name)
);

-- A file of a run, or a folder, which has no digest.
CREATE TABLE experiment_files (
    experiment bytea NOT NULL,
    run text NOT NULL,
    path text NOT NULL,
    digest bytea,
    bytes bigint NOT NULL,
    PRIMARY KEY (experiment, run, path),
    FOREIGN KEY (experiment, run) REFERENCES experiment_runs (experiment, name) ON DELETE CASCADE
);

-- What a file holds, in parts of up to 1 MiB.
CREATE TABLE experiment_parts (
    experiment bytea NOT NULL,
    run text NOT NULL,
    digest bytea NOT NULL,
    part integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (experiment, run, digest, part),
    FOREIGN KEY (experiment, run) REFERENCES experiment_runs (experiment, name) ON DELETE CASCADE
);
