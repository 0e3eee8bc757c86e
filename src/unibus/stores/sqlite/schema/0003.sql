-- When an entity was made, and when its settings last changed. 0: it is from before this was written down.
ALTER TABLE entities ADD COLUMN created_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entities ADD COLUMN updated_ns INTEGER NOT NULL DEFAULT 0;
