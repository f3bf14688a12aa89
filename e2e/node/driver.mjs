// Drives many official socket.io-client connections for the end-to-end tests. Every operation, its fields
// and its reply: README.md.
import { build } from "./lib/bodies.mjs";
import { burst } from "./lib/burst.mjs";
import { close, closeAll, connection, forget, open } from "./lib/connections.mjs";
import { join } from "./lib/join.mjs";
import { OperationError, serve } from "./lib/lines.mjs";

/** @typedef {import("./lib/lines.mjs").Command} Command */

/** @param {Command} command */
async function connect(command) {
  const { socket } = await open(command);
  return { sid: socket.id, transport: socket.io.engine.transport.name };
}

/** @param {Command} command */
async function emit({ conn, name, body, timeoutMs }) {
  const start = performance.now();
  const ack = await connection(conn).request(name, [build(body)], timeoutMs);
  return { ack, ms: performance.now() - start };
}

/** @param {Command} command */
async function emitRaw({ conn, name, args = [], ack = false, timeoutMs }) {
  const list = build(args);
  const event = name ?? list.shift();
  if (ack) return { ack: await connection(conn).request(event, list, timeoutMs) };
  connection(conn).socket.emit(event, ...list);
}

/**
 * Sends text as one Engine.IO message, past the Socket.IO encoder: `parts` are [text, times] pairs.
 *
 * @param {Command} command
 */
function sendRaw({ conn, parts }) {
  const pairs = /** @type {[string, number][]} */ (parts);
  connection(conn).socket.io.engine.send(pairs.map(([text, times]) => text.repeat(times)).join(""));
}

/** @param {Command} command */
function events({ conn, since = 0, name }) {
  const { received } = connection(conn);
  const found = received.slice(since).filter((each) => name === undefined || each.event === name);
  return { events: found, next: received.length };
}

/** @param {Command} command */
async function waitEvent({ conn, name, match = {}, since = 0, timeoutMs = 10_000 }) {
  const found = await connection(conn).waitFor(
    ({ event, body }) => (name === undefined || event === name) && contains(body, match),
    since,
    timeoutMs,
  );
  return { received: found, next: found.index + 1 };
}

/**
 * Whether `value` has everything that `part` has.
 *
 * @param {any} value
 * @param {any} part
 * @returns {boolean}
 */
function contains(value, part) {
  if (part === null || typeof part !== "object") return value === part;
  if (value === null || typeof value !== "object")
    return Object.keys(part).length === 0 && !Array.isArray(part);
  if (Array.isArray(part)) {
    return Array.isArray(value) && part.every((item) => value.some((each) => contains(each, item)));
  }
  return Object.entries(part).every(([key, item]) => contains(value[key], item));
}

/** @param {Command} command */
async function http({ method = "GET", url, headers, body, timeoutMs = 10_000 }) {
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(build(body));
  const json = typeof body === "object" ? { "content-type": "application/json" } : {};
  try {
    const response = await fetch(url, {
      method,
      headers: { ...json, ...headers },
      body: text,
      redirect: "manual",
      signal: AbortSignal.timeout(timeoutMs),
    });
    return {
      status: response.status,
      headers: Object.fromEntries(response.headers),
      body: await response.text(),
    };
  } catch (error) {
    const cause = error instanceof Error && error.cause ? `: ${error.cause}` : "";
    throw new OperationError(`${error}${cause}`);
  }
}

await serve(
  {
    connect,
    join,
    emit,
    emitNoAck({ conn, name, body }) {
      connection(conn).socket.emit(name, build(body));
    },
    emitRaw,
    sendRaw,
    burst,
    events,
    waitEvent,
    close: ({ conn }) => close(conn),
    abort: ({ conn }) => connection(conn).abort(),
    stall: ({ conn, stalled = true }) => connection(conn).stall(stalled),
    forget: ({ conn }) => forget(conn),
    status({ conn }) {
      const { socket, url, received } = connection(conn);
      return { connected: socket.connected, sid: socket.id ?? null, url, next: received.length };
    },
    http,
  },
  closeAll,
);
