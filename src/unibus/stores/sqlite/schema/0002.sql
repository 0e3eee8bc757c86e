-- Named positions, as of the last snapshot: how far others have come whose work goes into the store.
CREATE TABLE positions (name TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;

-- Where in history a message is spoken of. One block per some ten thousand changes, in buckets by the CRC of the
-- message id: `data` holds pairs of 32 bits each, the CRC and the distance from `first`. Whoever looks for a message
-- reads one bucket of each block.
CREATE TABLE trace_index (bucket INTEGER, first INTEGER, data BLOB NOT NULL, PRIMARY KEY (bucket, first)) WITHOUT ROWID;
CREATE TABLE trace_blocks (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
