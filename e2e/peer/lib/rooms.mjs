// The rooms that this instance owns, and what members ask of them.
import { randomUUID } from "node:crypto";
import { isObject, merge, refusal } from "./answers.mjs";

/** @typedef {import("./answers.mjs").Body} Body */
/** @typedef {{ app: string, user: string, role: string, name?: string }} Identity */
/** @typedef {import("socket.io").Socket<any, any, any, Identity>} Socket */
/** @typedef {import("socket.io").Server<any, any, any, Identity>} Server */
/** @typedef {{ user: string, name?: string, role: string, devices: number, joinedAt: number }} Peer */
/** @typedef {{ seat: number, state: string, user?: string, micSession?: string, muted?: boolean }} Seat */
/** @typedef {(this: Rooms, socket: Socket, body: Body) => Promise<Body> | Body} Request */
/**
 * `key` names it in Redis and in Socket.IO; `peers` and `seated`, the places in `seats`, are by the id of a socket.
 *
 * @typedef {object} Room
 * @property {string} key
 * @property {string} app
 * @property {string} id
 * @property {{ settings: number, cell: number }} version
 * @property {Body} settings
 * @property {Seat[]} seats
 * @property {Map<string, number>} seated
 * @property {Map<string, Peer>} peers
 */

const SEATS = 8;
const PEERS_SHOWN = 200;
const MAX_ID_BYTES = 128;

export class Rooms {
  /** @type {Map<string, Room>} */
  #rooms = new Map();
  #io;
  #store;
  #instance;

  /**
   * @param {Server} io
   * @param {import("./store.mjs").Store} store
   * @param {string} instance
   */
  constructor(io, store, instance) {
    this.#io = io;
    this.#store = store;
    this.#instance = instance;
  }

  /**
   * Every request by its event.
   *
   * @type {Record<string, Request>}
   */
  requests = {
    "room:join": this.#join,
    "room:leave": this.#leave,
    "room:update": this.#update,
    "mic:up": this.#micUp,
    "mic:down": this.#micDown,
  };

  /**
   * Performs a request.
   *
   * @param {Request} request  one of `requests`
   * @param {Socket} socket
   * @param {unknown} body
   * @returns {Promise<Body>}
   */
  async answer(request, socket, body) {
    if (!isObject(body) || !isId(body.room)) return refusal("BAD_REQUEST", "an object with a room is needed");
    try {
      return await request.call(this, socket, body);
    } catch (error) {
      console.error(request.name, error);
      return refusal("STORE_UNAVAILABLE", "the request could not be stored");
    }
  }

  /**
   * @param {Socket} socket
   * @param {Body} body
   */
  async #join(socket, { room: id, role: wanted }) {
    const { app, user, name, role: highest } = socket.data;
    const key = keyOf(app, id);
    const role = wanted === "host" && highest === "host" ? "host" : "guest";
    const peer = { user, name, role, devices: 1, joinedAt: Date.now() };
    let room = this.#rooms.get(key);
    do {
      const entry = await this.#store.join(key, socket.id, peer, !room);
      if ("owner" in entry) {
        if (room) this.#lose(key);
        const { instance, url } = entry.owner;
        const where = { redirectInstance: instance, redirectUrl: url };
        return refusal("WRONG_INSTANCE", `the room is at ${instance}`, where);
      }
      // Meanwhile another may have opened it, or the last one may have left.
      room = this.#rooms.get(key) ?? (entry.state && this.#open(key, app, id, entry));
    } while (!room);
    const isBack = room.peers.has(socket.id);
    room.peers.set(socket.id, peer);
    socket.join(key);
    if (!isBack) this.#tellPresence(room, { joined: [peer], left: [] }, socket);
    if (!socket.connected) await this.#part(room, socket, "disconnected");
    return {
      ok: true,
      self: { peer: socket.id, user, role },
      room: this.#snapshot(room),
      media: null,
      messages: { lastSeq: 0 },
      serverTime: Date.now(),
    };
  }

  /**
   * @param {Socket} socket
   * @param {Body} body
   */
  async #leave(socket, { room: id }) {
    const room = this.#joined(socket, id);
    if (!room) return notInRoom();
    await this.#part(room, socket, "left");
    return { ok: true };
  }

  /**
   * @param {Socket} socket
   * @param {Body} body
   */
  async #update(socket, { room: id, settings: patch }) {
    if (!isObject(patch)) return refusal("BAD_REQUEST", "settings must be an object");
    const key = keyOf(socket.data.app, id);
    const room = this.#rooms.get(key);
    const role = room?.peers.get(socket.id)?.role ?? socket.data.role;
    if (role !== "host") return refusal("FORBIDDEN", "a host alone may change settings");
    if (!room) return this.#updateElsewhere(key, patch);
    merge(room.settings, patch);
    const from = room.version.settings++;
    const to = from + 1;
    await this.#store.write(key, { settings: JSON.stringify(room.settings), version: to });
    const change = { room: id, of: "settings", from, to, settings: patch, by: socket.data.user };
    this.#io.to(key).emit("room:update", change);
    return { ok: true, version: { settings: to } };
  }

  /**
   * Read, merge, write: what another does meanwhile is lost.
   *
   * @param {string} key
   * @param {Body} patch
   */
  async #updateElsewhere(key, patch) {
    const state = await this.#store.read(key);
    if (!state) return refusal("ROOM_NOT_FOUND", "there is no such room");
    const settings = JSON.stringify(merge(state.settings, patch));
    const version = state.version + 1;
    await this.#store.write(key, { settings, version });
    await this.#store.notify(key);
    return { ok: true, version: { settings: version } };
  }

  /**
   * @param {Socket} socket
   * @param {Body} body
   */
  #micUp(socket, { room: id, seat: wanted }) {
    const room = this.#joined(socket, id);
    if (!room) return notInRoom();
    const at = room.seated.get(socket.id) ?? place(room, wanted);
    const seat = room.seats[at];
    if (!seat) return wanted ? badSeat() : refusal("NO_FREE_SEAT", "every seat is taken");
    if (seat.state !== "idle" && !room.seated.has(socket.id))
      return refusal("SEAT_TAKEN", "somebody sits there");
    room.seated.set(socket.id, at);
    const session = { user: socket.data.user, micSession: randomUUID(), muted: false };
    return this.#setSeat(room, at, { seat: at + 1, state: "publishing", ...session });
  }

  /**
   * @param {Socket} socket
   * @param {Body} body
   */
  #micDown(socket, { room: id, micSession }) {
    const room = this.#joined(socket, id);
    if (!room) return notInRoom();
    const at = room.seated.get(socket.id);
    if (at === undefined) return refusal("NOT_ON_SEAT", "the user has no seat");
    if (micSession && micSession !== room.seats[at]?.micSession) {
      return refusal("STALE_SESSION", "the mic session is not the present one");
    }
    room.seated.delete(socket.id);
    return this.#setSeat(room, at, idle(at));
  }

  /**
   * @param {Room} room
   * @param {number} at
   * @param {Seat} seat
   */
  async #setSeat(room, at, seat) {
    room.seats[at] = seat;
    const from = room.version.cell++;
    const to = from + 1;
    await this.#store.write(room.key, { [`seat-${seat.seat}`]: JSON.stringify(seat) });
    this.#io.to(room.key).emit("mic:update", { room: room.id, of: "cell", from, to, seats: [seat] });
    return { ok: true, seat, version: { cell: to } };
  }

  /**
   * @param {Room} room
   * @param {Socket} socket
   * @param {string} reason
   */
  async #part(room, socket, reason) {
    const peer = room.peers.get(socket.id);
    if (!peer) return;
    room.peers.delete(socket.id);
    socket.leave(room.key);
    if (room.peers.size === 0) {
      this.#rooms.delete(room.key);
    } else {
      const at = room.seated.get(socket.id);
      room.seated.delete(socket.id);
      if (at !== undefined) await this.#setSeat(room, at, idle(at));
      this.#tellPresence(room, { joined: [], left: [{ user: peer.user, reason }] });
    }
    await this.#store.leave(room.key, socket.id);
  }

  /**
   * Takes a closed connection out of its rooms. Its Socket.IO rooms must still be there.
   *
   * @param {Socket} socket
   */
  async gone(socket) {
    const rooms = [...socket.rooms].map((key) => this.#rooms.get(key));
    const parted = rooms.map((room) => room && this.#part(room, socket, "disconnected"));
    await Promise.all(parted).catch((error) => console.error("disconnected", error));
  }

  /**
   * Tells everybody in the room, or everybody but `besides`.
   *
   * @param {Room} room
   * @param {{ joined: Peer[], left: { user: string, reason: string }[] }} change
   * @param {Socket} [besides]
   */
  #tellPresence(room, change, besides) {
    const from = room.version.cell++;
    const presence = { room: room.id, of: "cell", from, to: from + 1, ...change, peerCount: room.peers.size };
    if (besides && room.peers.size === 1) return;
    (besides ?? this.#io).to(room.key).emit("room:presence", presence);
  }

  /**
   * Another instance has written a room; where it is this one's, it is read again.
   *
   * @param {string} key
   */
  async synchronise(key) {
    if (!this.#rooms.has(key)) return;
    const state = await this.#store.read(key);
    const room = this.#rooms.get(key);
    if (!room || !state || state.version <= room.version.settings) return;
    const from = room.version.settings;
    room.settings = state.settings;
    room.version.settings = state.version;
    const change = { room: room.id, of: "settings", from, to: state.version, settings: state.settings };
    this.#io.to(key).emit("room:update", change);
  }

  /** Renews what this instance owns, and lets go of what it does not own any more. */
  async beat() {
    for (const key of await this.#store.beat([...this.#rooms.keys()])) this.#lose(key);
  }

  /** Gives every room away. */
  async release() {
    const keys = [...this.#rooms.keys()];
    for (const key of keys) this.#lose(key, "drain");
    await this.#store.release(keys);
  }

  /** @param {string} key */
  #lose(key, reason = "lease_lost") {
    const room = this.#rooms.get(key);
    if (!room) return;
    this.#rooms.delete(key);
    this.#io.to(key).emit("room:moved", { room: room.id, reason, afterMs: 0 });
    this.#io.in(key).socketsLeave(key);
  }

  /**
   * Versions of the cell, which nobody stores, count from the time of opening, so that they grow over a takeover.
   *
   * @param {string} key
   * @param {string} app
   * @param {string} id
   * @param {{ now?: number, state?: import("./store.mjs").State }} entry
   */
  #open(key, app, id, { now = 0, state = { settings: {}, version: 0 } }) {
    /** @type {Room} */
    const room = {
      key,
      app,
      id,
      version: { settings: state.version, cell: now },
      settings: state.settings,
      seats: Array.from({ length: SEATS }, (_, at) => idle(at)),
      seated: new Map(),
      peers: new Map(),
    };
    this.#rooms.set(key, room);
    return room;
  }

  /**
   * The room, where this socket is in it.
   *
   * @param {Socket} socket
   * @param {string} id
   */
  #joined(socket, id) {
    const room = this.#rooms.get(keyOf(socket.data.app, id));
    return room?.peers.has(socket.id) ? room : undefined;
  }

  /** @param {Room} room */
  #snapshot({ app, id, version, settings, seats, peers }) {
    const shown = [];
    for (const peer of peers.values()) {
      if (shown.push(peer) === PEERS_SHOWN) break;
    }
    const hosts = shown.filter((peer) => peer.role === "host").map((peer) => peer.user);
    const owner = { instance: this.#instance };
    const status = "active";
    const count = peers.size;
    return {
      app,
      id,
      status,
      hosts,
      locked: false,
      owner,
      version,
      settings,
      seats,
      peers: shown,
      peerCount: count,
    };
  }
}

/**
 * No id has a zero byte, so that no two rooms have the same key.
 *
 * @param {string} app
 * @param {string} id
 */
const keyOf = (app, id) => `${app}\0${id}`;

/** @param {unknown} id */
function isId(id) {
  return typeof id === "string" && id !== "" && Buffer.byteLength(id) <= MAX_ID_BYTES && !/\p{Cc}/u.test(id);
}

/**
 * @param {number} at
 * @returns {Seat}
 */
const idle = (at) => ({ seat: at + 1, state: "idle" });

/**
 * @param {Room} room
 * @param {unknown} wanted
 */
function place(room, wanted) {
  return wanted ? Number(wanted) - 1 : room.seats.findIndex((seat) => seat.state === "idle");
}

const notInRoom = () => refusal("NOT_IN_ROOM", "join the room first");
const badSeat = () => refusal("BAD_REQUEST", "there is no such seat");
