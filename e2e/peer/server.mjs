// A Socket.IO server of rooms on Redis, as a team would write it, tuned as its libraries advise. README.md says what
// it is for.
import { createSecretKey } from "node:crypto";
import { createServer } from "node:http";
import jsonwebtoken from "jsonwebtoken";
import { Server } from "socket.io";
import { failure } from "./lib/answers.mjs";
import { Rooms } from "./lib/rooms.mjs";
import { Store } from "./lib/store.mjs";

/** @typedef {import("./lib/rooms.mjs").Socket} Socket */
/** @typedef {(this: Socket, body: unknown, ack: unknown) => Promise<void>} Listener */

const MAX_EVENT_BYTES = 64 * 1024;

const { PEER_SECRET, REDIS_URL = "redis://127.0.0.1:6379" } = process.env;
if (!PEER_SECRET) throw new Error("PEER_SECRET, which tokens are signed with, is missing");
const port = Number(process.env.PORT ?? 7900);
const heartbeatMs = Number(process.env.HEARTBEAT_MS ?? 5000);
const name = process.env.INSTANCE_ID ?? `peer-${port}`;
const publicUrl = process.env.PUBLIC_URL ?? `http://127.0.0.1:${port}`;
// Made once, or each token would have it made again.
const secret = createSecretKey(PEER_SECRET, "utf8");

const http = createServer((request, response) => {
  response.writeHead(request.url === "/healthz" ? 200 : 404).end();
});
/** @type {import("./lib/rooms.mjs").Server} */
const io = new Server(http, {
  serveClient: false,
  httpCompression: false,
  perMessageDeflate: false,
  maxHttpBufferSize: MAX_EVENT_BYTES,
});
const store = new Store({ url: REDIS_URL, name, publicUrl, heartbeatMs });
const rooms = new Rooms(io, store, name);

// Nobody needs the first request of a session after its handshake, and it is large.
io.engine.on("connection", (session) => {
  session.request = null;
});

io.use((socket, next) => {
  try {
    const { token } = socket.handshake.auth;
    const claims = jsonwebtoken.verify(token, secret, { algorithms: ["HS256"] });
    if (typeof claims === "string" || !claims.exp || !claims.sub || !claims.app)
      throw new Error("a claim is missing");
    socket.data = { app: claims.app, user: claims.sub, role: claims.role ?? "guest", name: claims.name };
    next();
  } catch (cause) {
    const data = failure("UNAUTHENTICATED", `the token is refused: ${cause}`);
    next(Object.assign(new Error(data.message), { data }));
  }
});

// The same functions for all sockets, which they have as `this`.
const listeners = Object.entries(rooms.requests).map(([event, request]) => {
  /** @type {Listener} */
  const listener = async function (body, ack) {
    const answer = await rooms.answer(request, this, body);
    if (typeof ack === "function") ack(answer);
  };
  return /** @type {const} */ ([event, listener]);
});
/** @this {Socket} */
function onDisconnecting() {
  rooms.gone(this);
}
io.on("connection", (socket) => {
  for (const [event, listener] of listeners) socket.on(event, listener);
  socket.on("disconnecting", onDisconnecting);
});

/** @type {NodeJS.Timeout} */
let timer;
async function beat() {
  await rooms.beat().catch((error) => console.error("heartbeat", error));
  timer = setTimeout(beat, heartbeatMs);
}

for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, async () => {
    clearTimeout(timer);
    await rooms.release();
    await io.close();
    process.exit();
  });
}

await store.listen((room) => rooms.synchronise(room).catch((error) => console.error("sync", error)));
await beat();
http.listen(port);
