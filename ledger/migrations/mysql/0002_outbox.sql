CREATE TABLE IF NOT EXISTS outbox (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    event_id CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    sink VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    app VARCHAR(128) NOT NULL,
    room_key CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    queue_key CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    payload LONGTEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    state SMALLINT NOT NULL,
    attempts BIGINT NOT NULL,
    last_error TEXT,
    done_at BIGINT,
    out_of_order SMALLINT NOT NULL,
    open SMALLINT,
    UNIQUE (event_id, sink),
    INDEX outbox_open (sink, open, queue_key, seq),
    INDEX outbox_state (state, seq),
    INDEX outbox_done (done_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE IF NOT EXISTS outbox_queue (
    sink VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    queue_key CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    due_at BIGINT NOT NULL,
    lock_until BIGINT NOT NULL,
    claim VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin,
    PRIMARY KEY (sink, queue_key),
    INDEX outbox_queue_due (sink, due_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
