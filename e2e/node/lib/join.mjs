// What a good client does to get into a room: follow redirects, wait out what is retryable, move to another
// instance when one cannot be reached.
import { setTimeout as pause } from "node:timers/promises";
import { connection, open } from "./connections.mjs";
import { OperationError } from "./lines.mjs";

const MAX_HOPS = 2;
const UNREACHABLE_PAUSE_MS = 100;

/**
 * Joins `room` as `conn`.
 *
 * `url` is one base URL or a list of them, `request` holds more fields for the request, `reuse` starts with the
 * connection as it is. Replies with the last ack, the redirects in a row that led to it (`hops`), all
 * redirects, the number of requests, and the codes that were waited out.
 *
 * @param {import("./lines.mjs").Command} command
 */
export async function join(command) {
  const { conn, room, role, attributes, request = {}, reuse = false } = command;
  const urls = [command.url ?? []].flat();
  const deadline = performance.now() + (command.deadlineMs ?? 30_000);
  const seen = { hops: 0, redirects: 0, requests: 0, waited: /** @type {string[]} */ ([]) };
  let next = 0;
  let url = urls[0];
  let connected = reuse && connection(conn).socket.connected;
  if (connected) url = connection(conn).url;

  /** Begins anew at the next of the URLs, once `ms` are over. */
  const retry = async (/** @type {string} */ code, /** @type {number} */ ms, elsewhere = false) => {
    if (performance.now() + ms > deadline) {
      throw new OperationError(`not joined in time: ${code}`, { code, timeout: true, url, ...seen });
    }
    seen.waited.push(code);
    await pause(ms);
    seen.hops = 0;
    if (!elsewhere || urls.length === 0) return;
    next = (next + 1) % urls.length;
    connected &&= urls[next] === url;
    url = urls[next];
  };

  for (;;) {
    const left = Math.max(1, deadline - performance.now());
    if (!connected) {
      try {
        await open({ ...command, url, timeoutMs: Math.min(left, 10_000) });
        connected = true;
      } catch (error) {
        const { data } = error instanceof OperationError ? error.details : {};
        const refusal = /** @type {any} */ (data);
        if (refusal?.code && !refusal.retryable) throw error;
        await retry(refusal?.code ?? "UNREACHABLE", refusal?.retryAfterMs ?? UNREACHABLE_PAUSE_MS, true);
        continue;
      }
    }

    seen.requests += 1;
    const ask = connection(conn);
    const body = { room, role, attributes, ...request, hops: seen.hops };
    /** @type {any} */
    let ack;
    try {
      ack = await ask.request("room:join", [body], Math.min(left, command.timeoutMs ?? 10_000));
    } catch {
      connected = ask.socket.connected;
      await retry("NO_ACK", UNREACHABLE_PAUSE_MS, !connected);
      continue;
    }
    if (ack?.ok) return { ack, url, sid: ask.socket.id, ...seen };

    const error = ack?.error ?? {};
    if (error.redirectUrl && (error.code === "WRONG_INSTANCE" || error.code === "DRAINING")) {
      if (seen.hops === MAX_HOPS) {
        throw new OperationError(`redirected more than ${MAX_HOPS} times in a row`, { ack, url, ...seen });
      }
      seen.hops += 1;
      seen.redirects += 1;
      url = error.redirectUrl;
      connected = false;
    } else if (error.retryable) {
      await retry(error.code, error.retryAfterMs ?? UNREACHABLE_PAUSE_MS, error.code === "DRAINING");
    } else {
      throw new OperationError(`refused: ${error.code}`, { code: error.code, ack, url, ...seen });
    }
  }
}
