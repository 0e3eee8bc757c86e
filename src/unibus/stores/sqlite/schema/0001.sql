-- The first schema. A file of a later number changes the one before it; none is ever edited.

CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- One row per group commit. `records` is a msgpack list of changes (core/lifecycle/state/changes.py), seq is that of the first.
-- The rows follow each other without a gap; crc is that of the records.
CREATE TABLE log (
    seq INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    at_ns INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    records BLOB NOT NULL
);

-- Every entity there ever was: history names them by number.
CREATE TABLE entities (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    kind INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    settings TEXT NOT NULL
);

CREATE TABLE retired (name TEXT PRIMARY KEY, sequence INTEGER NOT NULL) WITHOUT ROWID;

-- Messages of the last snapshot. key = entity << 40 | sequence. `saved` is a SavedEntry, data the encoded envelope;
-- data stands last, so that reading the rest does not read it.
CREATE TABLE messages (
    key INTEGER PRIMARY KEY,
    crc INTEGER NOT NULL,
    data_crc INTEGER NOT NULL,
    saved BLOB NOT NULL,
    data BLOB NOT NULL
);

CREATE TABLE sessions (
    entity INTEGER NOT NULL,
    id TEXT NOT NULL,
    crc INTEGER NOT NULL,
    saved BLOB NOT NULL,
    PRIMARY KEY (entity, id)
) WITHOUT ROWID;

CREATE TABLE marks (
    entity INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    key TEXT NOT NULL,
    at_ns INTEGER NOT NULL,
    PRIMARY KEY (entity, kind, key)
) WITHOUT ROWID;

-- Readers of history, where they stand, and how many events were forgotten before they had read them.
CREATE TABLE cursors (name TEXT PRIMARY KEY, seq INTEGER NOT NULL, at_ns INTEGER NOT NULL, missed INTEGER NOT NULL) WITHOUT ROWID;
