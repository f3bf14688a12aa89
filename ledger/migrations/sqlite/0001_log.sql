CREATE TABLE IF NOT EXISTS facts (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS lanes (
    lane INTEGER NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL,
    batches INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    at_ms INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS rooms (
    room_key TEXT NOT NULL PRIMARY KEY,
    app TEXT NOT NULL,
    room TEXT NOT NULL,
    lane INTEGER NOT NULL,
    token INTEGER NOT NULL,
    cv INTEGER NOT NULL,
    sv INTEGER NOT NULL,
    status TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    gap INTEGER NOT NULL,
    unfolded INTEGER NOT NULL
);

CREATE TABLE IF NOT EXISTS snapshots (
    room_key TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL,
    cv INTEGER NOT NULL,
    sv INTEGER NOT NULL,
    state TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS log (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    room_key TEXT NOT NULL,
    counter INTEGER NOT NULL,
    token INTEGER NOT NULL,
    version INTEGER NOT NULL,
    digest TEXT NOT NULL,
    kind TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    owner TEXT NOT NULL,
    body TEXT NOT NULL,
    caller TEXT,
    command_id TEXT,
    answer_digest TEXT,
    answer TEXT,
    superseded INTEGER NOT NULL,
    UNIQUE (room_key, counter, token, version, digest)
);

CREATE INDEX IF NOT EXISTS log_room ON log (room_key, seq);
CREATE INDEX IF NOT EXISTS log_at ON log (at_ms);

CREATE TABLE IF NOT EXISTS aside (
    seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    lane INTEGER NOT NULL,
    entry TEXT NOT NULL,
    digest TEXT NOT NULL,
    fields TEXT NOT NULL,
    why TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    UNIQUE (lane, entry, digest)
);
CREATE INDEX IF NOT EXISTS aside_at ON aside (at_ms);
