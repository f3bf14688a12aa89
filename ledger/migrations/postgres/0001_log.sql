CREATE TABLE IF NOT EXISTS facts (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS lanes (
    lane SMALLINT NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    batches BIGINT NOT NULL,
    entries BIGINT NOT NULL,
    at_ms BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS rooms (
    room_key TEXT NOT NULL PRIMARY KEY,
    app TEXT NOT NULL,
    room TEXT NOT NULL,
    lane SMALLINT NOT NULL,
    token BIGINT NOT NULL,
    cv BIGINT NOT NULL,
    sv BIGINT NOT NULL,
    status TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    gap SMALLINT NOT NULL,
    unfolded BIGINT NOT NULL
);

CREATE TABLE IF NOT EXISTS snapshots (
    room_key TEXT NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    cv BIGINT NOT NULL,
    sv BIGINT NOT NULL,
    state TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS log (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    room_key TEXT NOT NULL,
    counter SMALLINT NOT NULL,
    token BIGINT NOT NULL,
    version BIGINT NOT NULL,
    digest TEXT NOT NULL,
    kind TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    owner TEXT NOT NULL,
    body TEXT NOT NULL,
    caller TEXT,
    command_id TEXT,
    answer_digest TEXT,
    answer TEXT,
    superseded SMALLINT NOT NULL,
    UNIQUE (room_key, counter, token, version, digest)
);

CREATE INDEX IF NOT EXISTS log_room ON log (room_key, seq);
CREATE INDEX IF NOT EXISTS log_at ON log (at_ms);

CREATE TABLE IF NOT EXISTS aside (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane SMALLINT NOT NULL,
    entry TEXT NOT NULL,
    digest TEXT NOT NULL,
    fields TEXT NOT NULL,
    why TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    UNIQUE (lane, entry, digest)
);
CREATE INDEX IF NOT EXISTS aside_at ON aside (at_ms);
