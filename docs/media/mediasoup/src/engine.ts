// What Dais asks of a media server, without HTTP and without mediasoup.

import { Refusal } from "./http.ts";

/** Whose media a router carries. */
export interface RoomInfo {
  app: string;
  room: string;
  generation: number;
}

export interface Permissions {
  publishAudio: boolean;
  publishVideo: boolean;
  subscribe: boolean;
}

/** One device of a user. */
export interface Member extends RoomInfo {
  user: string;
  peer: string;
  display?: string;
  permissions: Permissions;
}

/** Somebody who is connected. */
export interface Participant {
  participant: string;
  /** Their stay, as `session` in their events. */
  incarnation?: string;
  audible?: boolean;
  mayPublishAudio?: boolean;
}

/** Routers and participants go by the names that Dais gives them. Every call may be repeated. */
export interface Engine {
  makeRouter(router: string, info: RoomInfo): Promise<void>;
  findRouter(router: string): void;
  closeRouter(router: string): void;
  /** Answers what the participant's client needs in order to connect. */
  letIn(router: string, participant: string, member: Member): Promise<unknown>;
  setPermissions(router: string, participant: string, permissions: Permissions): Promise<void>;
  remove(router: string, participant: string): void;
  list(router: string): Participant[];
  /** How many are connected. */
  count(): number;
}

/** Says that something is gone. Dais tells it by this body from the `404` of a wrong address. */
export function missing(what: "router" | "participant"): Refusal {
  return new Refusal(404, { missing: what });
}

/** Says that the room has a newer router than the one that is asked for. */
export function newer(generation: number): Refusal {
  return new Refusal(409, { generation });
}
