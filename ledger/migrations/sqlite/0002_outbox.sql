CREATE TABLE IF NOT EXISTS outbox (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    event_id TEXT NOT NULL,
    sink TEXT NOT NULL,
    app TEXT NOT NULL,
    room_key TEXT NOT NULL,
    queue_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    state INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    last_error TEXT,
    done_at INTEGER,
    out_of_order INTEGER NOT NULL,
    open INTEGER,
    UNIQUE (event_id, sink)
);

CREATE INDEX IF NOT EXISTS outbox_open ON outbox (sink, open, queue_key, seq);
CREATE INDEX IF NOT EXISTS outbox_state ON outbox (state, seq);
CREATE INDEX IF NOT EXISTS outbox_done ON outbox (done_at);

CREATE TABLE IF NOT EXISTS outbox_queue (
    sink TEXT NOT NULL,
    queue_key TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    lock_until INTEGER NOT NULL,
    claim TEXT,
    PRIMARY KEY (sink, queue_key)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS outbox_queue_due ON outbox_queue (sink, due_at);
