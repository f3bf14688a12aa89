// What requests are answered with when they are refused, and merge patches.
import { randomUUID } from "node:crypto";

/** @typedef {Record<string, any>} Body  what a request carries, or an answer */

const RETRY_AFTER_MS = 500;
const RETRYABLE = new Set(["WRONG_INSTANCE", "NO_FREE_SEAT", "STORE_UNAVAILABLE"]);

/**
 * The error object of the protocol.
 *
 * @param {string} code
 * @param {string} message
 * @param {Body} [more]
 */
export function failure(code, message, more) {
  const pause = RETRYABLE.has(code) ? { retryAfterMs: RETRY_AFTER_MS } : {};
  return { code, message, retryable: RETRYABLE.has(code), requestId: randomUUID(), ...pause, ...more };
}

/**
 * The answer to a request that is refused.
 *
 * @param {string} code
 * @param {string} message
 * @param {Body} [more]
 */
export function refusal(code, message, more) {
  return { ok: false, error: failure(code, message, more) };
}

/**
 * @param {unknown} value
 * @returns {value is Body}
 */
export function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Applies a JSON Merge Patch (RFC 7386) to `target` itself.
 *
 * @param {Body} target
 * @param {Body} patch
 */
export function merge(target, patch) {
  for (const [name, value] of Object.entries(patch)) {
    const present = Object.hasOwn(target, name) ? target[name] : undefined;
    if (value === null) delete target[name];
    else target[name] = isObject(value) ? merge(isObject(present) ? present : {}, value) : value;
  }
  return target;
}
