// The engine itself: Dais's routers and participants as mediasoup's routers, transports and producers.

import { randomUUID } from "node:crypto";
import type { types } from "mediasoup";
import {
  type Engine,
  type Member,
  missing,
  newer,
  type Participant,
  type Permissions,
  type RoomInfo,
} from "./engine.ts";
import type { Outbox } from "./events.ts";
import { Guest } from "./guest.ts";

const CODECS: types.RouterRtpCodecCapability[] = [
  { kind: "audio", mimeType: "audio/opus", clockRate: 48000, channels: 2 },
  { kind: "video", mimeType: "video/VP8", clockRate: 90000 },
];

/** The quietest volume that mediasoup knows, in dBov; the loudest is 0. */
const SILENCE = -127;

/** How many are told the levels of, and how often. */
const LEVELS = { maxEntries: 20, threshold: -70, interval: 1_000 };

interface Room {
  info: RoomInfo;
  router: types.Router;
  observer: types.AudioLevelObserver;
  guests: Map<string, Guest>;
  outbox: Outbox;
}

export interface RoomsOptions {
  worker: types.Worker;
  /** One for all rooms: their media shares its ports. */
  webRtcServer: types.WebRtcServer;
  /** Where clients find this server: `https://media.example/client`. */
  clientUrl: string;
  outbox: (app: string) => Outbox;
}

export class Rooms implements Engine {
  readonly #options: RoomsOptions;
  readonly #rooms = new Map<string, Room>();
  readonly #making = new Map<string, Promise<void>>();
  readonly #byToken = new Map<string, Guest>();

  constructor(options: RoomsOptions) {
    this.#options = options;
  }

  /** A repeat that comes while the first is still at work waits for the same router. */
  makeRouter(name: string, info: RoomInfo): Promise<void> {
    const making = this.#making.get(name) ?? this.#make(name, info);
    this.#making.set(name, making);
    return making.finally(() => this.#making.delete(name));
  }

  async #make(name: string, info: RoomInfo): Promise<void> {
    const same = [...this.#rooms.values()].map((room) => room.info);
    const newest = same
      .filter((other) => other.app === info.app && other.room === info.room)
      .reduce((most, other) => Math.max(most, other.generation), info.generation);
    if (newest > info.generation) throw newer(newest);
    if (this.#rooms.has(name)) return;

    const router = await this.#options.worker.createRouter({ mediaCodecs: CODECS });
    const observer = await router.createAudioLevelObserver(LEVELS);
    const room: Room = { info, router, observer, guests: new Map(), outbox: this.#options.outbox(info.app) };
    this.#rooms.set(name, room);
    this.#tellLevels(name, room);
  }

  /** mediasoup names the loudest of the last second, and says once when nobody is loud any more. */
  #tellLevels(router: string, room: Room): void {
    let loud = new Set<string>();
    const tell = (volumes: types.AudioLevelObserverVolume[]): void => {
      const levels = new Map([...loud].map((participant) => [participant, 0]));
      for (const { producer, volume } of volumes) {
        levels.set(String(producer.appData.participant), (volume - SILENCE) / -SILENCE);
      }
      loud = new Set([...levels].filter(([, level]) => level > 0).map(([participant]) => participant));
      room.outbox.levels([...levels].map(([participant, level]) => ({ router, participant, level })));
    };
    room.observer.on("volumes", tell);
    room.observer.on("silence", () => tell([]));
  }

  findRouter(name: string): void {
    this.#room(name);
  }

  closeRouter(name: string): void {
    const room = this.#room(name);
    for (const participant of [...room.guests.keys()]) this.remove(name, participant);
    this.#rooms.delete(name);
    room.router.close();
    room.outbox.tell({ type: "room_finished", router: name });
  }

  async letIn(name: string, participant: string, member: Member): Promise<unknown> {
    const room = this.#room(name);
    let guest = room.guests.get(participant);
    if (guest) {
      await guest.permit(member.permissions);
    } else {
      guest = new Guest({
        ...room,
        webRtcServer: this.#options.webRtcServer,
        routerName: name,
        participant,
        token: randomUUID(),
        permissions: member.permissions,
      });
      room.guests.set(participant, guest);
      this.#byToken.set(guest.token, guest);
    }
    return { url: this.#options.clientUrl, token: guest.token };
  }

  async setPermissions(name: string, participant: string, permissions: Permissions): Promise<void> {
    const guest = this.#room(name).guests.get(participant);
    if (!guest) throw missing("participant");
    await guest.permit(permissions);
  }

  remove(name: string, participant: string): void {
    const room = this.#room(name);
    const guest = room.guests.get(participant);
    if (!guest) throw missing("participant");
    room.guests.delete(participant);
    this.#byToken.delete(guest.token);
    guest.leave("removed");
  }

  list(name: string): Participant[] {
    return [...this.#room(name).guests.values()].flatMap((guest) => guest.seen() ?? []);
  }

  count(): number {
    const connected = (room: Room) => [...room.guests.values()].filter((guest) => guest.seen()).length;
    return [...this.#rooms.values()].reduce((sum, room) => sum + connected(room), 0);
  }

  /** Whose client has this token. */
  byToken(token: string): Guest | undefined {
    return this.#byToken.get(token);
  }

  /** What can be heard and seen in a guest's room. */
  othersOf(guest: Guest): { producer: string; participant: string; kind: types.MediaKind }[] {
    const room = this.#rooms.get(guest.routerName);
    const others = [...(room?.guests.values() ?? [])].filter((other) => other !== guest);
    return others.flatMap((other) =>
      other.producers().map(({ id, kind }) => ({ producer: id, participant: other.participant, kind })),
    );
  }

  #room(name: string): Room {
    const room = this.#rooms.get(name);
    if (!room) throw missing("router");
    return room;
  }
}
