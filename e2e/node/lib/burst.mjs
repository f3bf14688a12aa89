// Many requests at once with a bounded number in flight, and how long each took.
import { build, fill } from "./bodies.mjs";
import { connection } from "./connections.mjs";

/**
 * Sends `count` requests round-robin over `conns`, their bodies from `bodies` (round-robin) or made from
 * `template`. Replies with `results: [{ conn, ack | error, ms }]` in the order of sending, or with counts and
 * percentiles only where `summary` is set.
 *
 * @param {import("./lines.mjs").Command} command
 */
export async function burst({ conns, name, bodies, template, concurrency = 64, count, timeoutMs, summary }) {
  const total = count ?? bodies.length;
  /** @type {{ conn: string, ack?: any, error?: string, ms: number }[]} */
  const results = new Array(total);
  const began = performance.now();
  let sent = 0;

  const worker = async () => {
    while (sent < total) {
      const i = sent++;
      const conn = conns[i % conns.length];
      const body = build(bodies ? bodies[i % bodies.length] : fill(template, i, conn));
      const start = performance.now();
      try {
        const ack = await connection(conn).request(name, [body], timeoutMs);
        results[i] = { conn, ack, ms: performance.now() - start };
      } catch (error) {
        results[i] = { conn, error: String(error), ms: performance.now() - start };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, total) }, worker));

  const elapsedMs = performance.now() - began;
  return summary ? { elapsedMs, ...summarise(results) } : { elapsedMs, results };
}

/** @param {{ ack?: any, error?: string, ms: number }[]} results */
function summarise(results) {
  /** @type {Record<string, number>} */
  const codes = {};
  let succeeded = 0;
  for (const { ack, error } of results) {
    if (ack?.ok) succeeded += 1;
    else {
      const code = ack?.error?.code ?? (error ? "NO_ACK" : "UNKNOWN");
      codes[code] = (codes[code] ?? 0) + 1;
    }
  }
  const sorted = results.map(({ ms }) => ms).sort((a, b) => a - b);
  const at = (/** @type {number} */ q) =>
    sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0;
  return { count: results.length, succeeded, codes, p50: at(0.5), p90: at(0.9), p99: at(0.99), max: at(1) };
}
