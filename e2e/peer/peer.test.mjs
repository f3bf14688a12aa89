// The server as clients have it: real processes on a private Redis, and the official client.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import jsonwebtoken from "jsonwebtoken";
import { io } from "socket.io-client";

/** @typedef {import("node:child_process").ChildProcess} Process */
/** @typedef {{ process: Process, url: string }} Instance */
/** @typedef {import("socket.io-client").Socket} Client */

const SECRET = "a secret of this test, long enough for HS256";
const HEARTBEAT_MS = 500;
const RETRY_MS = 20;
const DEADLINE_MS = 10_000;

/** @type {Process[]} */
const processes = [];
/** @type {Client[]} */
const clients = [];
let redisUrl = "";
/** @type {Instance} */
let first;
/** @type {Instance} */
let second;

before(async () => {
  const port = await freePort();
  redisUrl = `redis://127.0.0.1:${port}`;
  start("redis-server", ["--port", `${port}`, "--bind", "127.0.0.1", "--save", ""], {});
  [first, second] = await Promise.all([instance("first"), instance("second")]);
});

after(() => {
  for (const client of clients) client.close();
  for (const process of processes) process.kill("SIGKILL");
});

test("members see each other, and what a host changes", async () => {
  const [host, guest] = await Promise.all([connect(first, "ann", "host"), connect(first, "bob")]);
  const opened = await ask(host, "room:join", { room: "a", role: "host" });
  assert.equal(opened.room.peerCount, 1);
  const presence = told(host, "room:presence");
  const joined = await ask(guest, "room:join", { room: "a" });
  assert.deepEqual(joined.self, { peer: guest.id, user: "bob", role: "guest" });
  assert.deepEqual(
    joined.room.peers.map((/** @type {any} */ peer) => peer.user),
    ["ann", "bob"],
  );
  assert.equal((await presence).to, joined.room.version.cell);

  const changes = Promise.all([told(host, "room:update"), told(guest, "room:update")]);
  const settings = { mode: "quiet", vad: { ms: 200 } };
  const answer = await ask(host, "room:update", { room: "a", settings });
  for (const change of await changes) {
    assert.deepEqual(change.settings, settings);
    assert.equal(change.to, answer.version.settings);
  }
  assert.equal(await refused(guest, "room:update", { room: "a", settings }), "FORBIDDEN");
});

test("seats are taken, left, and run out", async () => {
  const people = await Promise.all(Array.from({ length: 9 }, (_, at) => connect(first, `person-${at}`)));
  for (const person of people) await ask(person, "room:join", { room: "b" });
  const ups = await Promise.all(people.slice(0, 8).map((person) => ask(person, "mic:up", { room: "b" })));
  assert.equal(new Set(ups.map((up) => up.seat.seat)).size, 8);
  const [leaver, late] = [at(people, 0), at(people, 8)];
  assert.equal(await refused(late, "mic:up", { room: "b" }), "NO_FREE_SEAT");
  assert.equal(await refused(leaver, "mic:down", { room: "b", micSession: "another" }), "STALE_SESSION");
  const freed = told(late, "mic:update");
  leaver.close();
  assert.deepEqual((await freed).seats, [{ seat: at(ups, 0).seat.seat, state: "idle" }]);
  await ask(late, "mic:up", { room: "b" });
});

test("another instance redirects, and its hosts may change settings all the same", async () => {
  const member = await connect(first, "ann");
  await ask(member, "room:join", { room: "c" });
  const host = await connect(second, "hanna", "host");
  const { error } = await host.emitWithAck("room:join", { room: "c" });
  const { code, redirectInstance, redirectUrl } = error;
  assert.deepEqual(
    { code, redirectInstance, redirectUrl },
    {
      code: "WRONG_INSTANCE",
      redirectInstance: "first",
      redirectUrl: first.url,
    },
  );
  const change = told(member, "room:update");
  await ask(host, "room:update", { room: "c", settings: { mode: "loud" } });
  assert.deepEqual((await change).settings, { mode: "loud" });
  assert.equal(await refused(host, "room:update", { room: "none", settings: {} }), "ROOM_NOT_FOUND");
});

test("the room of a killed instance is taken over with its settings, that of one that stops at once", async () => {
  const killed = await instance("killed");
  const host = await connect(killed, "ann", "host");
  const { room } = await ask(host, "room:join", { room: "d", role: "host" });
  await ask(host, "room:update", { room: "d", settings: { mode: "quiet" } });
  killed.process.kill("SIGKILL");
  const heir = await connect(second, "bob");
  const taken = await eventually(
    () => heir.emitWithAck("room:join", { room: "d" }),
    (answer) => answer.ok,
  );
  assert.deepEqual(taken.room.settings, { mode: "quiet" });
  assert.equal(taken.room.peerCount, 1);
  assert.ok(taken.room.version.cell > room.version.cell);

  const stopped = await instance("stopped");
  const member = await connect(stopped, "carla");
  await ask(member, "room:join", { room: "e" });
  const moved = told(member, "room:moved");
  const ended = once(stopped.process, "exit");
  stopped.process.kill("SIGTERM");
  assert.equal((await moved).reason, "drain");
  assert.deepEqual(await ended, [0, null]);
  await ask(heir, "room:join", { room: "e" });
});

test("a token that is wrong is refused", async () => {
  const auth = { token: jsonwebtoken.sign({ app: "demo", sub: "eve" }, "another secret", { expiresIn: 60 }) };
  const client = io(first.url, { auth, transports: ["websocket"], reconnection: false });
  clients.push(client);
  /** @type {any} */
  const error = await told(client, "connect_error");
  assert.equal(error.data.code, "UNAUTHENTICATED");
});

/**
 * @param {string} program
 * @param {string[]} options
 * @param {Record<string, string>} variables
 */
function start(program, options, variables) {
  const folder = fileURLToPath(new URL(".", import.meta.url));
  const env = { ...process.env, ...variables };
  const started = spawn(program, options, { cwd: folder, env, stdio: ["ignore", "ignore", "inherit"] });
  processes.push(started);
  return started;
}

/**
 * @param {string} name
 * @returns {Promise<Instance>}
 */
async function instance(name) {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const process = start("node", ["server.mjs"], {
    PEER_SECRET: SECRET,
    PORT: `${port}`,
    REDIS_URL: redisUrl,
    INSTANCE_ID: name,
    HEARTBEAT_MS: `${HEARTBEAT_MS}`,
  });
  await eventually(
    () => fetch(`${url}/healthz`).catch(() => undefined),
    (answer) => answer?.status === 200,
  );
  return { process, url };
}

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  server.close();
  return port;
}

/**
 * @param {Instance} instance
 * @param {string} user
 */
async function connect({ url }, user, role = "guest") {
  const token = jsonwebtoken.sign({ app: "demo", sub: user, role }, SECRET, { expiresIn: 60 });
  const client = io(url, { auth: { token }, transports: ["websocket"], reconnection: false, forceNew: true });
  clients.push(client);
  await told(client, "connect");
  return client;
}

/**
 * The next event of this name.
 *
 * @param {Client} client
 * @param {string} event
 * @returns {Promise<any>}
 */
function told(client, event) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no ${event}`)), DEADLINE_MS);
    client.once(event, (body) => {
      clearTimeout(timer);
      resolve(body);
    });
  });
}

/**
 * @param {Client} client
 * @param {string} event
 * @param {object} body
 */
async function ask(client, event, body) {
  const answer = await client.timeout(DEADLINE_MS).emitWithAck(event, body);
  assert.ok(answer.ok, JSON.stringify(answer));
  return answer;
}

/**
 * @param {Client} client
 * @param {string} event
 * @param {object} body
 */
async function refused(client, event, body) {
  const answer = await client.timeout(DEADLINE_MS).emitWithAck(event, body);
  return answer.error?.code;
}

/**
 * @template T
 * @param {() => Promise<T>} ask
 * @param {(answer: T) => boolean} suits
 */
async function eventually(ask, suits) {
  const deadline = performance.now() + DEADLINE_MS;
  for (;;) {
    const answer = await ask();
    if (suits(answer)) return answer;
    assert.ok(performance.now() < deadline, `still ${JSON.stringify(answer)}`);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/**
 * @template T
 * @param {T[]} list
 * @param {number} index
 */
function at(list, index) {
  const found = list[index];
  assert.ok(found !== undefined);
  return found;
}
