// The Socket.IO connections of a driver, each with everything that it has received.
import { EventEmitter } from "node:events";
import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import { io } from "socket.io-client";
import { now, OperationError, push } from "./lines.mjs";

/** @typedef {import("socket.io-client").Socket} Socket */
/** @typedef {{ index: number, event: string, body: unknown, t: number }} Received */

/** One named connection; it keeps its name when a redirect gives it another socket. */
class Connection {
  /**
   * @param {string} name
   * @param {string} url
   * @param {Socket} socket
   * @param {HttpAgent} agent  holds the TCP connections of polling
   * @param {Connection} [earlier]  of the same name, whose record goes on
   */
  constructor(name, url, socket, agent, earlier) {
    this.name = name;
    this.url = url;
    this.socket = socket;
    this.agent = agent;
    /** @type {Received[]} */
    const received = earlier?.received ?? [];
    /** @type {EventEmitter} */
    const arrivals = earlier?.arrivals ?? new EventEmitter().setMaxListeners(0);
    this.received = received;
    this.arrivals = arrivals;
  }

  /**
   * @param {string} event
   * @param {unknown} body
   * @param {boolean} quiet  kept, not pushed
   */
  record(event, body, quiet) {
    const received = { index: this.received.length, event, body, t: now() };
    this.received.push(received);
    if (!quiet) push({ event, conn: this.name, body, t: received.t });
    this.arrivals.emit("received", received);
  }

  /**
   * Emits and waits for the ack.
   *
   * @param {string} event
   * @param {unknown[]} args
   * @param {number} [timeoutMs]
   */
  async request(event, args, timeoutMs = 10_000) {
    try {
      return await this.socket.timeout(timeoutMs).emitWithAck(event, ...args);
    } catch (error) {
      throw new OperationError(error instanceof Error ? error.message : String(error), {
        noAck: true,
        connected: this.socket.connected,
      });
    }
  }

  /**
   * Waits until something received from index `since` on fits.
   *
   * @param {(received: Received) => boolean} fits
   * @param {number} since
   * @param {number} timeoutMs
   * @returns {Promise<Received>}
   */
  waitFor(fits, since, timeoutMs) {
    const earlier = this.received.slice(since).find(fits);
    if (earlier) return Promise.resolve(earlier);
    return new Promise((resolve, reject) => {
      const done = () => {
        clearTimeout(timer);
        this.arrivals.off("received", check);
      };
      /** @param {Received} received */
      const check = (received) => {
        if (!fits(received)) return;
        done();
        resolve(received);
      };
      const timer = setTimeout(() => {
        done();
        reject(new OperationError(`nothing that fits came within ${timeoutMs} ms`, { timeout: true }));
      }, timeoutMs);
      this.arrivals.on("received", check);
    });
  }

  /** Cuts the TCP connection without a goodbye, as a lost network does; reconnection then starts where it is on. */
  abort() {
    const transport = /** @type {any} */ (this.socket.io.engine.transport);
    if (transport.ws) {
      transport.ws.terminate();
    } else {
      this.agent.destroy();
      transport.onClose({ description: "aborted" });
    }
  }

  /**
   * Stops or goes on reading from the TCP connection (WebSocket only).
   *
   * @param {boolean} stalled
   */
  stall(stalled) {
    const ws = /** @type {any} */ (this.socket.io.engine.transport).ws;
    if (!ws) throw new OperationError("only a WebSocket connection can be stalled");
    if (stalled) ws.pause();
    else ws.resume();
  }

  drop() {
    this.socket.disconnect();
  }
}

/** @type {Map<string, Connection>} */
const connections = new Map();

/** @param {string} name */
export function connection(name) {
  const found = connections.get(name);
  if (!found) throw new OperationError(`no such connection: ${name}`);
  return found;
}

/** @param {string} name */
export function close(name) {
  connection(name).drop();
}

export function closeAll() {
  for (const each of connections.values()) each.drop();
}

/**
 * Forgets a connection and what it received.
 *
 * @param {string} name
 */
export function forget(name) {
  connections.get(name)?.drop();
  connections.delete(name);
}

/**
 * The origin and the Socket.IO path of a server: a base URL may itself have a path (`/i/{instance}`).
 *
 * @param {string} url
 * @param {string} [path]
 */
function endpoint(url, path) {
  const { origin, pathname } = new URL(url);
  return { origin, path: path ?? `${pathname.replace(/\/+$/, "")}/socket.io/` };
}

/**
 * Opens `conn`, closing an earlier connection of that name but keeping what it received.
 *
 * @param {import("./lines.mjs").Command} options
 * @returns {Promise<Connection>}
 */
export function open({
  conn,
  url,
  path,
  auth,
  transports = ["websocket"],
  headers,
  reconnection = false,
  reconnectionDelayMs = 100,
  timeoutMs = 10_000,
  quiet = false,
}) {
  const at = endpoint(url, path);
  const earlier = connections.get(conn);
  earlier?.drop();
  const agent = new (at.origin.startsWith("https:") ? HttpsAgent : HttpAgent)({ keepAlive: true });
  const socket = io(at.origin, {
    // The types know the browser's agent only.
    agent: /** @type {any} */ (agent),
    path: at.path,
    auth,
    transports,
    extraHeaders: headers,
    reconnection,
    reconnectionDelay: reconnectionDelayMs,
    reconnectionDelayMax: 4 * reconnectionDelayMs,
    timeout: timeoutMs,
    forceNew: true,
  });
  const opened = new Connection(conn, url, socket, agent, earlier);
  connections.set(conn, opened);
  socket.onAny((event, ...args) => opened.record(event, args.length > 1 ? args : args[0], quiet));

  return new Promise((resolve, reject) => {
    let settled = false;
    socket.on("connect", () => {
      opened.record("connect", { sid: socket.id, recovered: socket.recovered }, quiet);
      settled = true;
      resolve(opened);
    });
    socket.on("disconnect", (reason) => opened.record("disconnect", { reason }, quiet));
    socket.on("connect_error", (/** @type {any} */ error) => {
      const details = {
        message: error.message,
        data: error.data ?? null,
        status: error.context?.status ?? httpStatus(error) ?? null,
        responseText: error.context?.responseText ?? null,
      };
      opened.record("connect_error", details, quiet);
      if (settled) return;
      settled = true;
      socket.disconnect();
      reject(new OperationError(error.message, details));
    });
    // A server that ends between the transport's opening and the answer to the handshake is no error to the socket. A
    // refusal that came just before is told a moment after the end, and says more.
    socket.io.on("close", (reason) => {
      setTimeout(() => {
        if (settled || reconnection) return;
        settled = true;
        reject(new OperationError(`closed before it was connected: ${reason}`));
      }, 100);
    });
  });
}

/**
 * The HTTP status in the message of a refused WebSocket upgrade.
 *
 * @param {any} error
 */
function httpStatus(error) {
  const match = /Unexpected server response: (\d+)/.exec(error.description?.message ?? "");
  return match ? Number(match[1]) : undefined;
}
