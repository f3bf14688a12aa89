import assert from "node:assert/strict";
import { test } from "node:test";
import { Dais } from "../src/dais.ts";
import type { Room } from "../src/room.ts";
import { ManualClock, settled } from "./manual_clock.ts";
import { joinAnswer, snapshot } from "./samples.ts";
import { type FakeSocket, fakeSockets, refusal } from "./sockets.ts";

const A = "http://a.test/";
const B = "http://b.test/i/b";

function world() {
  const clock = new ManualClock();
  const { sockets, open } = fakeSockets();
  let tokens = 0;
  const token = () => {
    tokens += 1;
    return `token-${tokens}`;
  };
  const dais = new Dais({ url: A, token }, clock, open);
  return { clock, sockets, dais, asked: () => tokens };
}

function last(sockets: FakeSocket[]): FakeSocket {
  const socket = sockets.at(-1);
  if (!socket) throw new Error("nothing was connected to");
  return socket;
}

async function joined(dais: Dais, sockets: FakeSocket[]): Promise<Room> {
  const joining = dais.join("math");
  await settled();
  last(sockets).take("room:join").answer(joinAnswer());
  return joining;
}

test("a redirect is followed with one hop more, and the first connection closes", async () => {
  const { dais, sockets, clock } = world();
  const joining = dais.join("math");
  await settled();
  const first = last(sockets);
  first.take("room:join").refuse(refusal("WRONG_INSTANCE", { retryable: true, redirectUrl: B }));
  await settled();
  assert.equal(first.isOpen, false);
  const request = last(sockets).take("room:join");
  assert.deepEqual([last(sockets).url, request.body.hops], [B, 1]);
  request.answer(joinAnswer());
  const room = await joining;
  assert.equal(room.state.id, "math");
  dais.close();
  assert.deepEqual([last(sockets).isOpen, clock.pending], [false, 0]);
});

test("redirects in a circle end at the entry, after a wait", async () => {
  const { dais, sockets, clock } = world();
  const joining = dais.join("math");
  for (const hops of [0, 1, 2]) {
    await settled();
    const request = last(sockets).take("room:join");
    assert.equal(request.body.hops, hops);
    request.refuse(refusal("WRONG_INSTANCE", { retryable: true, redirectUrl: hops % 2 ? A : B }));
  }
  await settled();
  assert.equal(last(sockets).sent.length, 0);
  await clock.pass(250);
  const request = last(sockets).take("room:join");
  assert.deepEqual([last(sockets).url, request.body.hops], [A, 0]);
  request.answer(joinAnswer());
  await joining;
  dais.close();
});

test("an update is shown at once, and rolled back when it is refused", async () => {
  const { dais, sockets } = world();
  const room = await joined(dais, sockets);
  const updating = room.settings.update({ noiseReduction: "far_field" });
  assert.equal(room.state.settings.noiseReduction, "far_field");
  await settled();
  last(sockets).take("room:update").refuse(refusal("FORBIDDEN"));
  await assert.rejects(updating, { code: "FORBIDDEN", requestId: "r1" });
  assert.equal(room.state.settings.noiseReduction, "off");
  dais.close();
});

test("a command whose ack is lost is sent again under its id on the next connection", async () => {
  const { dais, sockets, clock } = world();
  const room = await joined(dais, sockets);
  const muting = room.seats.mute(true);
  await settled();
  const first = last(sockets);
  const { id } = first.take("mic:mute").body;
  first.say("disconnect", "transport close");
  await clock.pass(250);
  assert.notEqual(last(sockets), first);
  const request = last(sockets).take("room:join");
  assert.equal(request.body.resume, "secret");
  request.answer(joinAnswer());
  await clock.pass(250);
  const again = last(sockets).take("mic:mute");
  assert.equal(again.body.id, id);
  again.answer({ version: { cell: 2 } });
  assert.deepEqual((await muting).version, { cell: 2 });
  dais.close();
  assert.equal(clock.pending, 0);
});

test("after a gap the room is joined once more, whatever else comes meanwhile", async () => {
  const { dais, sockets, clock } = world();
  const room = await joined(dais, sockets);
  const socket = last(sockets);
  socket.tell("room:update", { room: "math", of: "settings", from: 3, to: 4 });
  socket.tell("room:update", { room: "math", of: "settings", from: 4, to: 5 });
  await clock.pass(250);
  assert.equal(socket.sent.filter(({ name }) => name === "room:join").length, 1);
  socket.take("room:join").answer(joinAnswer(snapshot(5)));
  socket.tell("room:update", { room: "math", of: "settings", from: 5, to: 6 });
  assert.equal(room.state.version.settings, 6);
  await clock.pass(60_000);
  assert.deepEqual([sockets.length, socket.sent], [1, []]);
  dais.close();
});

test("a room that moves is joined where it went, after the time that it needs", async () => {
  const { dais, sockets, clock } = world();
  await joined(dais, sockets);
  last(sockets).tell("room:moved", { room: "math", reason: "drain", redirectUrl: B, afterMs: 700 });
  await clock.pass(699);
  assert.equal(sockets.length, 1);
  await clock.pass(1);
  const request = last(sockets).take("room:join");
  assert.deepEqual([last(sockets).url, request.body.hops], [B, 1]);
  dais.close();
});

test("rooms of one instance share a connection, which closes with the last", async () => {
  const { dais, sockets, clock } = world();
  const one = await joined(dais, sockets);
  const joining = dais.join("arts");
  await settled();
  last(sockets).take("room:join").answer(joinAnswer());
  const two = await joining;
  assert.equal(sockets.length, 1);
  for (const [room, isOpen] of [
    [one, true],
    [two, false],
  ] as const) {
    const leaving = room.leave();
    await settled();
    last(sockets).take("room:leave").answer({});
    await leaving;
    assert.equal(last(sockets).isOpen, isOpen);
  }
  assert.equal(clock.pending, 0);
});

test("a token that expires, and one that is refused, are each asked for once", async () => {
  const { dais, sockets, asked } = world();
  const room = await joined(dais, sockets);
  last(sockets).tell("auth:expiring", { expiresInMs: 60_000 });
  await settled();
  const refresh = last(sockets).take("auth:refresh");
  assert.deepEqual([refresh.body, asked()], [{ token: "token-2" }, 2]);
  refresh.answer({ expiresAt: 0 });
  const kicking = room.kick("bob");
  await settled();
  last(sockets).take("room:kick").refuse(refusal("UNAUTHENTICATED"));
  await settled();
  last(sockets).take("auth:refresh").answer({ expiresAt: 0 });
  await settled();
  last(sockets).take("room:kick").refuse(refusal("UNAUTHENTICATED"));
  await assert.rejects(kicking, { code: "UNAUTHENTICATED" });
  assert.equal(asked(), 3);
  dais.close();
});

test("who is kicked is told why, and what is pending ends with it", async () => {
  const { dais, sockets, clock } = world();
  const room = await joined(dais, sockets);
  const ends: unknown[] = [];
  room.on("ended", ({ by, reason }) => ends.push([by, reason]));
  const pending = room.seats.up();
  await settled();
  last(sockets).tell("session:evicted", { reason: "kicked" });
  last(sockets).tell("room:kicked", { room: "math", reason: "noise" });
  await assert.rejects(pending, { code: "ENDED" });
  await settled();
  assert.deepEqual([ends, clock.pending, last(sockets).isOpen], [[["kicked", "noise"]], 0, false]);
});

test("a join that nobody answers ends within a minute", async () => {
  const { dais, sockets, clock } = world();
  const joining = dais.join("math");
  const refused = assert.rejects(joining, { code: "TIMEOUT" });
  await clock.pass(60_000);
  await refused;
  assert.equal(clock.pending, 0);
  assert.ok(sockets.every(({ isOpen }) => !isOpen));
});
