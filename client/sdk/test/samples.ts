import type { JoinAnswer, Peer, Snapshot } from "../src/protocol.ts";

export function peer(user: string): Peer {
  return { user, role: "guest", devices: 1, joinedAt: 0 };
}

export function snapshot(settings = 1, cell = 1): Snapshot {
  return {
    app: "demo",
    id: "math",
    status: "active",
    hosts: ["ann"],
    locked: false,
    owner: { instance: "a", token: 1 },
    version: { settings, cell },
    settings: {
      autoTransitionEnabled: false,
      vad: { threshold: 0.5, prefixPaddingMs: 300, silenceDurationMs: 200 },
      noiseReduction: "off",
      realtimeModelVersion: "one",
      custom: { topic: "sums", page: 1 },
    },
    guests: {},
    seats: [
      { seat: 1, state: "idle" },
      { seat: 2, state: "idle" },
    ],
    requests: {},
    invites: {},
    peers: [peer("ann")],
    peerCount: 1,
  };
}

export function joinAnswer(room = snapshot()): JoinAnswer {
  return {
    self: { peer: "p1", user: "ann", role: "host", resume: "secret" },
    room,
    media: null,
    messages: { lastSeq: 0 },
    serverTime: 0,
    heartbeatMs: 10_000,
  };
}
