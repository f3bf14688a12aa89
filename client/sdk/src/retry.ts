import type { DaisError } from "./error.ts";

/** How long a command may stay pending, whatever is hidden meanwhile. */
export const BUDGET_MS = 60_000;
/** How long an ack is waited for on one connection. */
export const ACK_MS = 8000;
/** Redirects followed in a row; the protocol allows no more. */
export const MAX_HOPS = 2;

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;
/** A server that asks for more is asked before. */
const LONGEST_ASKED_MS = 30_000;

/**
 * How long to wait before attempt `attempt` + 1, `attempt` counting from 0: what the server asks for, or twice as long each
 * time, and up to half of it more, so that clients that were refused together do not come back together.
 */
export function pauseMs(attempt: number, retryAfterMs: number | undefined, random: number): number {
  const grown = Math.min(FIRST_PAUSE_MS * 2 ** attempt, LONGEST_PAUSE_MS);
  const asked = Math.min(retryAfterMs ?? 0, LONGEST_ASKED_MS);
  return Math.max(grown, asked) * (1 + random / 2);
}

/** The wait before `error`'s request is sent again, or `null` if it is the caller's to know. */
export function retryIn(error: DaisError, attempt: number, leftMs: number, random: number): number | null {
  if (!error.isHidden) return null;
  const pause = pauseMs(attempt, error.retryAfterMs, random);
  return pause < leftMs ? pause : null;
}
