import { merge } from "./patch.ts";
import type { Asked, CellChange, SettingsChange, Snapshot, Versions } from "./protocol.ts";

/** One change of one counter of a room, whatever event it came as. */
export type Change = { of: keyof Versions; from: number; to: number } & SettingsChange & CellChange;

/** `old`: known already. `gap`: something before it was missed, so the room must be read again. */
export type Reduced = { kind: "applied"; room: Snapshot } | { kind: "old" } | { kind: "gap" };

/** The room after `change`; the snapshot that is given stays as it is. */
export function reduce(room: Snapshot, change: Change): Reduced {
  const known = room.version[change.of];
  if (change.to <= known) return { kind: "old" };
  if (change.from > known) return { kind: "gap" };
  const changed = change.of === "cell" ? withCell(room, change) : withSettings(room, change);
  return { kind: "applied", room: { ...changed, version: { ...room.version, [change.of]: change.to } } };
}

export function withSettings(room: Snapshot, { settings, guests }: SettingsChange): Snapshot {
  return {
    ...room,
    settings: merge(room.settings, settings ?? {}),
    guests: merge(room.guests, guests ?? {}),
  };
}

function withCell(room: Snapshot, change: CellChange): Snapshot {
  return {
    ...room,
    peers: peersAfter(room, change),
    seats: seatsAfter(room, change),
    peerCount: change.peerCount ?? room.peerCount,
    hosts: change.hosts ?? room.hosts,
    locked: change.locked ?? room.locked,
    status: change.status ?? room.status,
    requests: asked(room.requests, change.requests),
    invites: asked(room.invites, change.invites),
    ...(change.call && { call: change.call }),
  };
}

function peersAfter({ peers }: Snapshot, { joined = [], left = [], peers: changed = [] }: CellChange) {
  const now = [...joined, ...changed];
  const gone = new Set([...left, ...now].map(({ user }) => user));
  return gone.size === 0 ? peers : [...peers.filter(({ user }) => !gone.has(user)), ...now];
}

function seatsAfter(room: Snapshot, { seats = [], seatCount }: CellChange) {
  const kept = seatCount === undefined ? room.seats : [];
  const byNumber = new Map([...kept, ...seats].map((seat) => [seat.seat, seat]));
  return [...byNumber.values()].sort((a, b) => a.seat - b.seat);
}

/** Users are keys here: none of them is an object to be merged into. */
function asked(now: Record<string, Asked>, change: CellChange["requests"] = {}): Record<string, Asked> {
  const all = [...Object.entries(now), ...Object.entries(change)];
  const last = [...new Map(all)];
  return Object.fromEntries(last.filter((entry): entry is [string, Asked] => entry[1] !== null));
}
