-- Batches with an id, as of the last snapshot: `saved` is an Applied (core/lifecycle/state/changes.py), by its age.
CREATE TABLE batches (age_ns INTEGER PRIMARY KEY, crc INTEGER NOT NULL, saved BLOB NOT NULL);
