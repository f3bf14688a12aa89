// The HTTP half with an engine that only remembers: everybody who is let in comes at once, and speaks.

import type { AddressInfo } from "node:net";
import { api } from "../src/api.ts";
import { AudioGate } from "../src/audio.ts";
import {
  type Engine,
  type Member,
  missing,
  newer,
  type Participant,
  type Permissions,
  type RoomInfo,
} from "../src/engine.ts";
import { type Fact, Outbox } from "../src/events.ts";
import { serve } from "../src/http.ts";

interface Room {
  info: RoomInfo;
  guests: Map<string, { permissions: Permissions; gate: AudioGate }>;
}

class Memory implements Engine {
  readonly #rooms = new Map<string, Room>();
  readonly #outbox: Outbox;

  constructor(outbox: Outbox) {
    this.#outbox = outbox;
  }

  async makeRouter(router: string, info: RoomInfo): Promise<void> {
    for (const { info: other } of this.#rooms.values()) {
      const same = other.app === info.app && other.room === info.room;
      if (same && other.generation > info.generation) throw newer(other.generation);
    }
    if (!this.#rooms.has(router)) this.#rooms.set(router, { info, guests: new Map() });
  }

  findRouter(router: string): void {
    this.#room(router);
  }

  closeRouter(router: string): void {
    for (const participant of [...this.#room(router).guests.keys()]) this.remove(router, participant);
    this.#rooms.delete(router);
    this.#outbox.tell({ type: "room_finished", router });
  }

  async letIn(router: string, participant: string, member: Member): Promise<unknown> {
    const tell = (type: Fact["type"], reason?: string) =>
      this.#outbox.tell({
        type,
        router,
        participant,
        session: `s-${participant}`,
        ...(reason && { reason }),
      });
    const gate = new AudioGate((open, reason) => tell(open ? "audio_started" : "audio_stopped", reason));
    this.#room(router).guests.set(participant, { permissions: member.permissions, gate });
    tell("participant_joined");
    gate.open();
    this.#outbox.levels([{ router, participant, level: 0.5 }]);
    return { hello: member.display };
  }

  async setPermissions(router: string, participant: string, permissions: Permissions): Promise<void> {
    const guest = this.#guest(router, participant);
    guest.permissions = permissions;
    if (!permissions.publishAudio) guest.gate.close("muted");
  }

  remove(router: string, participant: string): void {
    this.#guest(router, participant).gate.close();
    this.#room(router).guests.delete(participant);
    this.#outbox.tell({ type: "room_exited", router, participant, session: `s-${participant}` });
  }

  list(router: string): Participant[] {
    return [...this.#room(router).guests].map(([participant, { permissions, gate }]) => ({
      participant,
      incarnation: `s-${participant}`,
      audible: gate.isOpen,
      mayPublishAudio: permissions.publishAudio,
    }));
  }

  count(): number {
    return [...this.#rooms.values()].reduce((sum, room) => sum + room.guests.size, 0);
  }

  #room(router: string): Room {
    const room = this.#rooms.get(router);
    if (!room) throw missing("router");
    return room;
  }

  #guest(router: string, participant: string) {
    const guest = this.#room(router).guests.get(participant);
    if (!guest) throw missing("participant");
    return guest;
  }
}

const [secret = "", events = ""] = process.argv.slice(2);
const dais = api(new Memory(new Outbox(events, secret)), [secret]);
const server = serve({ routers: dais, health: dais });
server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
// Whoever started it closes its input, by dying if not otherwise.
process.stdin.resume().on("close", () => process.exit());
