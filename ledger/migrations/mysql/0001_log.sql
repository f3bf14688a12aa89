CREATE TABLE IF NOT EXISTS facts (
    name VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE IF NOT EXISTS lanes (
    lane SMALLINT NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    batches BIGINT NOT NULL,
    entries BIGINT NOT NULL,
    at_ms BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE IF NOT EXISTS rooms (
    room_key CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    app VARCHAR(128) NOT NULL,
    room VARCHAR(128) NOT NULL,
    lane SMALLINT NOT NULL,
    token BIGINT NOT NULL,
    cv BIGINT NOT NULL,
    sv BIGINT NOT NULL,
    status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at BIGINT NOT NULL,
    at_ms BIGINT NOT NULL,
    gap SMALLINT NOT NULL,
    unfolded BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE IF NOT EXISTS snapshots (
    room_key CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    cv BIGINT NOT NULL,
    sv BIGINT NOT NULL,
    state LONGTEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE IF NOT EXISTS log (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    room_key CHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    counter SMALLINT NOT NULL,
    token BIGINT NOT NULL,
    version BIGINT NOT NULL,
    digest CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    kind VARCHAR(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    at_ms BIGINT NOT NULL,
    owner TEXT NOT NULL,
    body LONGTEXT NOT NULL,
    caller TEXT,
    command_id TEXT,
    answer_digest TEXT,
    answer LONGTEXT,
    superseded SMALLINT NOT NULL,
    UNIQUE (room_key, counter, token, version, digest),
    INDEX log_room (room_key, seq),
    INDEX log_at (at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

CREATE TABLE IF NOT EXISTS aside (
    seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    lane SMALLINT NOT NULL,
    entry VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    digest CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    fields LONGTEXT NOT NULL,
    why TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    UNIQUE (lane, entry, digest),
    INDEX aside_at (at_ms)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
