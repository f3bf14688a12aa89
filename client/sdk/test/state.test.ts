import assert from "node:assert/strict";
import { test } from "node:test";
import { Optimism } from "../src/optimism.ts";
import { merge } from "../src/patch.ts";
import type { Snapshot } from "../src/protocol.ts";
import { type Change, reduce } from "../src/state.ts";
import { peer, snapshot } from "./samples.ts";

function applied(room: Snapshot, change: Change): Snapshot {
  const reduced = reduce(room, change);
  assert.equal(reduced.kind, "applied");
  return (reduced as { room: Snapshot }).room;
}

test("a patch merges objects, removes by null, and changes neither side", () => {
  const before = { a: { b: 1, c: 2 }, list: [1, 2] };
  assert.deepEqual(merge(before, { a: { b: null, d: 3 }, list: [3] }), { a: { c: 2, d: 3 }, list: [3] });
  assert.deepEqual(before, { a: { b: 1, c: 2 }, list: [1, 2] });
  assert.deepEqual(Object.keys(merge({}, JSON.parse('{"__proto__":{"x":1}}'))), ["__proto__"]);
});

test("what is known already is old, and what skips a version is a gap", () => {
  const room = snapshot(5, 7);
  assert.deepEqual(reduce(room, { of: "settings", from: 4, to: 5 }), { kind: "old" });
  assert.deepEqual(reduce(room, { of: "cell", from: 8, to: 9 }), { kind: "gap" });
});

test("the counters go on each by itself", () => {
  const room = applied(snapshot(5, 7), {
    of: "settings",
    from: 5,
    to: 6,
    settings: { custom: { page: 2 } },
    guests: { bob: { handRaised: true } },
  });
  assert.deepEqual(room.version, { settings: 6, cell: 7 });
  assert.deepEqual(room.settings.custom, { topic: "sums", page: 2 });
  assert.deepEqual(room.guests, { bob: { handRaised: true } });
});

test("a change that reaches from before what is known is applied", () => {
  assert.equal(applied(snapshot(5), { of: "settings", from: 3, to: 6 }).version.settings, 6);
});

test("presence, seats and requests follow the cell", () => {
  const first = snapshot();
  const second = applied(first, {
    of: "cell",
    from: 1,
    to: 2,
    joined: [peer("bob")],
    left: [],
    peerCount: 2,
    seats: [{ seat: 2, state: "publishing", user: "bob" }],
    requests: { bob: { at: 1 } },
  });
  assert.deepEqual(
    second.peers.map(({ user }) => user),
    ["ann", "bob"],
  );
  assert.deepEqual(
    second.seats.map(({ state }) => state),
    ["idle", "publishing"],
  );
  const third = applied(second, {
    of: "cell",
    from: 2,
    to: 3,
    left: [{ user: "ann", reason: "left" }],
    peerCount: 1,
    seatCount: 1,
    seats: [{ seat: 1, state: "idle" }],
    requests: { bob: null },
  });
  assert.deepEqual(
    third.peers.map(({ user }) => user),
    ["bob"],
  );
  assert.deepEqual([third.seats.length, third.requests], [1, {}]);
  assert.deepEqual(first, snapshot());
});

test("a hope is shown until the room has it, or it is withdrawn", () => {
  const hopes = new Optimism();
  const room = snapshot(1);
  hopes.add("one", { settings: { noiseReduction: "far_field" } });
  hopes.add("two", { settings: { realtimeModelVersion: "two" } });
  assert.equal(hopes.over(room).settings.noiseReduction, "far_field");
  hopes.withdraw("two");
  assert.equal(hopes.over(room).settings.realtimeModelVersion, "one");
  hopes.confirm("one", 2);
  hopes.settle(room);
  assert.equal(hopes.over(room).settings.noiseReduction, "far_field");
  hopes.settle(snapshot(2));
  assert.equal(hopes.over(room), room);
});
