CREATE TABLE IF NOT EXISTS outbox (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id TEXT NOT NULL,
    sink TEXT NOT NULL,
    app TEXT NOT NULL,
    room_key TEXT NOT NULL,
    queue_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    state SMALLINT NOT NULL,
    attempts BIGINT NOT NULL,
    last_error TEXT,
    done_at BIGINT,
    out_of_order SMALLINT NOT NULL,
    open SMALLINT,
    UNIQUE (event_id, sink)
);

CREATE INDEX IF NOT EXISTS outbox_open ON outbox (sink, open, queue_key, seq);
CREATE INDEX IF NOT EXISTS outbox_state ON outbox (state, seq);
CREATE INDEX IF NOT EXISTS outbox_done ON outbox (done_at);

CREATE TABLE IF NOT EXISTS outbox_queue (
    sink TEXT NOT NULL,
    queue_key TEXT NOT NULL,
    due_at BIGINT NOT NULL,
    lock_until BIGINT NOT NULL,
    claim TEXT,
    PRIMARY KEY (sink, queue_key)
);

CREATE INDEX IF NOT EXISTS outbox_queue_due ON outbox_queue (sink, due_at);
