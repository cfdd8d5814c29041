-- Training samples that devices of a run leave out, those that leave some out.
CREATE TABLE left_out (
    run     TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    device  TEXT NOT NULL,               -- 32 hexadecimal digits
    samples INTEGER NOT NULL,            -- as it said last, at least 1
    PRIMARY KEY (run, device)
) STRICT, WITHOUT ROWID;
