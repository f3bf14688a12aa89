// What is in Redis: who owns a room, the room itself, its peers, and which instances live.
import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";

/** @typedef {{ url: string, name: string, publicUrl: string, heartbeatMs: number }} StoreOptions */
/** @typedef {{ settings: import("./answers.mjs").Body, version: number }} State */
/** @typedef {{ instance: string, url: string }} Owner */
/** @typedef {{ owner: Owner } | { now?: number, state?: State }} Entry  elsewhere, or what this instance needs to know */
/** @typedef {(...args: (string | number)[]) => Promise<any>} Script */

const INSTANCES = "peer:instances";
const SYNC = "peer:router-sync";
/** Owner keys that one call handles, so that Redis is never busy with it for long. */
const BATCH = 500;
/** The owner key outlives this many heartbeats less one. */
const MISSED = 3;

const NOW = `
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`;
const SCRIPTS = {
  // The pin: makes the caller the owner unless another living instance is, and enters the peer.
  join: `
local owner, state, peers, instances = unpack(KEYS)
local me, ttl, id, peer, is_new = unpack(ARGV)
${NOW}
local holder = redis.call("GET", owner)
if holder ~= me then
  local beat = holder and redis.call("ZSCORE", instances, holder)
  if beat and now - beat <= tonumber(ttl) then
    return { holder }
  end
  redis.call("SET", owner, me, "PX", ttl)
  redis.call("DEL", peers)
end
redis.call("HSET", peers, id, peer)
if is_new == "0" then
  return { false }
end
redis.call("HSETNX", state, "version", 0)
return { false, now, unpack(redis.call("HMGET", state, "settings", "version")) }
`,
  // The last who leaves takes the room along.
  leave: `
local owner, state, peers = unpack(KEYS)
local me, id = unpack(ARGV)
if redis.call("GET", owner) == me and redis.call("HDEL", peers, id) == 1 and redis.call("EXISTS", peers) == 0 then
  redis.call("DEL", owner, state)
end
`,
  beat: `
local me, ttl = unpack(ARGV)
${NOW}
redis.call("ZADD", KEYS[1], now, me)
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now - 10 * ttl)
local lost = {}
for at = 2, #KEYS do
  local holder = redis.call("GET", KEYS[at])
  if not holder or holder == me then
    redis.call("SET", KEYS[at], me, "PX", ttl)
  else
    lost[#lost + 1] = at - 2
  end
end
return lost
`,
  release: `
local me = ARGV[1]
redis.call("ZREM", KEYS[1], me)
for at = 2, #KEYS do
  if redis.call("GET", KEYS[at]) == me then
    redis.call("DEL", KEYS[at])
  end
end
`,
};

/** @param {string} room */
const ownerKey = (room) => `peer:owner:${room}`;
/** @param {string} room */
const stateKey = (room) => `peer:room:${room}`;
/** @param {string} room */
const peersKey = (room) => `peer:peers:${room}`;

export class Store {
  /** As owner keys name this process: a restarted instance is another owner, under the same name. */
  #self;
  #ttl;
  #redis;
  #subscriber;
  /** @type {Record<keyof typeof SCRIPTS, Script>} */
  #scripts;

  /** @param {StoreOptions} options */
  constructor({ url, name, publicUrl, heartbeatMs }) {
    this.#self = [name, publicUrl, randomUUID()].join(" ");
    this.#ttl = MISSED * heartbeatMs;
    this.#redis = new Redis(url, { enableAutoPipelining: true });
    this.#subscriber = this.#redis.duplicate();
    for (const [name, lua] of Object.entries(SCRIPTS)) this.#redis.defineCommand(name, { lua });
    this.#scripts = /** @type {any} */ (this.#redis);
  }

  /**
   * Enters a peer into a room, which becomes this instance's if it is nobody's.
   *
   * @param {string} room
   * @param {string} id
   * @param {object} peer
   * @param {boolean} isNew  whether this instance has yet to learn the room's state
   * @returns {Promise<Entry>}
   */
  async join(room, id, peer, isNew) {
    const keys = [ownerKey(room), stateKey(room), peersKey(room), INSTANCES];
    const values = [this.#self, this.#ttl, id, JSON.stringify(peer), isNew ? 1 : 0];
    const [holder, now, settings, version] = await this.#scripts.join(keys.length, ...keys, ...values);
    if (holder) {
      const [instance, url] = holder.split(" ");
      return { owner: { instance, url } };
    }
    return isNew ? { now, state: parse(settings, version) } : {};
  }

  /**
   * @param {string} room
   * @param {string} id
   */
  leave(room, id) {
    return this.#scripts.leave(3, ownerKey(room), stateKey(room), peersKey(room), this.#self, id);
  }

  /**
   * @param {string} room
   * @param {Record<string, string | number>} fields
   */
  write(room, fields) {
    return this.#redis.hset(stateKey(room), fields);
  }

  /**
   * @param {string} room
   * @returns {Promise<State | undefined>}  nothing where there is no such room
   */
  async read(room) {
    const [settings, version] = await this.#redis.hmget(stateKey(room), "settings", "version");
    return version ? parse(settings, version) : undefined;
  }

  /**
   * Tells the owner, whoever it is, that a room was written.
   *
   * @param {string} room
   */
  notify(room) {
    return this.#redis.publish(SYNC, room);
  }

  /** @param {(room: string) => void} told  called with each room that another instance has written */
  async listen(told) {
    this.#subscriber.on("message", (_, room) => told(room));
    await this.#subscriber.subscribe(SYNC);
  }

  /**
   * Says that this instance lives, and still owns these rooms.
   *
   * @param {string[]} rooms
   * @returns {Promise<string[]>}  those that it does not own any more
   */
  async beat(rooms) {
    const lost = [];
    for (const batch of batches(rooms)) {
      const keys = [INSTANCES, ...batch.map(ownerKey)];
      const places = await this.#scripts.beat(keys.length, ...keys, this.#self, this.#ttl);
      lost.push(...places.map((/** @type {number} */ at) => batch[at]));
    }
    return lost;
  }

  /**
   * Gives the rooms to whoever comes first, and ends.
   *
   * @param {string[]} rooms
   */
  async release(rooms) {
    for (const batch of batches(rooms)) {
      const keys = [INSTANCES, ...batch.map(ownerKey)];
      await this.#scripts.release(keys.length, ...keys, this.#self);
    }
    await Promise.all([this.#redis.quit(), this.#subscriber.quit()]);
  }
}

/**
 * One batch at least, for an instance without rooms lives too.
 *
 * @param {string[]} rooms
 */
function* batches(rooms) {
  for (let at = 0; at === 0 || at < rooms.length; at += BATCH) yield rooms.slice(at, at + BATCH);
}

/**
 * @param {string | null | undefined} settings
 * @param {string} version
 * @returns {State}
 */
function parse(settings, version) {
  return { settings: JSON.parse(settings ?? "{}"), version: Number(version) };
}
