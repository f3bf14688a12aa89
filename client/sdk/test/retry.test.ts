import assert from "node:assert/strict";
import { test } from "node:test";
import { Pauses } from "../src/clock.ts";
import { DaisError } from "../src/error.ts";
import { pauseMs, retryIn } from "../src/retry.ts";
import { ManualClock } from "./manual_clock.ts";
import { refusal } from "./sockets.ts";

test("pauses grow, are bounded, and are never shorter than asked for", () => {
  assert.deepEqual(
    [0, 1, 2, 10].map((attempt) => pauseMs(attempt, undefined, 0)),
    [250, 500, 1000, 5000],
  );
  assert.equal(pauseMs(0, 2000, 0), 2000);
  assert.equal(pauseMs(0, 2000, 0.5), 2500);
  assert.equal(pauseMs(0, 3_600_000, 0), 30_000);
});

test("what is hidden is tried again while there is time, all else is the caller's", () => {
  const lost = DaisError.of(refusal("LEASE_LOST", { retryable: true, retryAfterMs: 400 }));
  assert.equal(retryIn(lost, 0, 10_000, 0), 400);
  assert.equal(retryIn(lost, 0, 300, 0), null);
  const full = DaisError.of(refusal("ROOM_FULL", { retryable: true, retryAfterMs: 400 }));
  assert.equal(retryIn(full, 0, 10_000, 0), null);
});

test("pauses that are ended leave no timer, and none begins after", async () => {
  const clock = new ManualClock();
  const pauses = new Pauses(clock);
  const waiting = pauses.pause(1000);
  pauses.end(new Error("over"));
  await assert.rejects(waiting, /over/);
  await assert.rejects(pauses.pause(1000), /over/);
  assert.equal(clock.pending, 0);
});
