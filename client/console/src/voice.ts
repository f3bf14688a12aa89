import type { Requests, Seat } from "@dais/sdk/protocol";
import type { Devices } from "./devices.ts";
import type { Room } from "./room.ts";

/** Asks for something of the room, and shows why if it is not done; `null` then. */
export type Ask = <Name extends keyof Requests>(
  name: Name,
  body: Omit<Requests[Name]["body"], "room">,
) => Promise<Requests[Name]["answer"] | null>;

/** How the page stands with the media server. */
export interface MediaLink {
  /** There is a connection that has the page's sound, or would have it. */
  isConnected: boolean;
  isExternal: boolean;
}

/**
 * Keeps microphone and seat in step. Whoever takes a seat, or asked for the one that is given, has the microphone
 * opened; one that was opened for a seat is closed with it. Whether a sitter is muted is the seat's to say.
 */
export class Voice {
  readonly #room: Room;
  readonly #devices: Devices;
  readonly #link: () => MediaLink;
  #seat: Seat | undefined;
  /** A seat was asked for and has not come yet. */
  #climbing = false;
  #hadRequest = false;
  #openedForSeat = false;
  #confirmed = "";

  constructor(room: Room, devices: Devices, link: () => MediaLink) {
    this.#room = room;
    this.#devices = devices;
    this.#link = link;
  }

  readonly ask: Ask = async (name, body) => {
    const climbs =
      (name === "mic:up" || (name === "mic:respond" && "accept" in body && body.accept)) && !("user" in body);
    if (climbs) this.#climbing = true;
    const answer = await this.#room.ask(name, body);
    if (climbs && !answer) this.#climbing = false;
    return answer;
  };

  /** Takes note of the room, the microphone and the connection as they are now. */
  follow(): void {
    const { room, self } = this.#room.state;
    const before = this.#seat;
    const now = room?.seats.find(({ user }) => user !== undefined && user === self?.user);
    this.#seat = now;
    if (!now) {
      const isOpen = this.#openedForSeat;
      this.#openedForSeat = false;
      if (isOpen) this.#devices.stop();
    } else if (now.micSession !== before?.micSession) {
      const willing = this.#climbing || this.#hadRequest;
      this.#climbing = false;
      this.#seated(now, willing);
    } else if (now.muted !== before?.muted) {
      this.#devices.muted = now.muted ?? false;
    }
    if (now?.state === "pending_publish") this.#confirm(now, before);
    else this.#confirmed = "";
    this.#hadRequest = self !== null && room?.requests[self.user] !== undefined;
  }

  toggleMuted(): void {
    this.#devices.muted = !this.#devices.muted;
    if (this.#seat) this.#tellMuted();
  }

  async toggleMicrophone(): Promise<void> {
    if (this.#devices.on) this.#devices.stop();
    else await this.#devices.start();
  }

  async #seated(seat: Seat, willing: boolean): Promise<void> {
    if (this.#devices.muted && !seat.muted) this.#tellMuted();
    else this.#devices.muted = seat.muted ?? false;
    const session = seat.micSession ?? "";
    if (this.#devices.on || !willing) return;
    this.#openedForSeat = true;
    const isOpen = await this.#devices.start();
    if (this.#seat?.micSession !== session) this.#devices.stop();
    else if (!isOpen) this.#room.ask("mic:down", { micSession: session });
  }

  /**
   * The media server says when sound starts. What flowed before the seat was taken starts no more, and whoever is
   * muted sends silence: that is for the client to say. To an external server nothing flows without a seat.
   */
  #confirm(seat: Seat, before: Seat | undefined): void {
    const { isConnected, isExternal } = this.#link();
    const session = seat.micSession ?? "";
    const isNew = !isExternal && (before?.state !== seat.state || before.micSession !== session);
    const isSilent = this.#devices.muted && this.#confirmed !== session;
    if (!this.#devices.on || !isConnected || !(isNew || isSilent)) return;
    this.#confirmed = session;
    this.#room.ask("mic:confirm", { micSession: session });
  }

  async #tellMuted(): Promise<void> {
    const told = await this.#room.ask("mic:mute", { muted: this.#devices.muted });
    if (!told && this.#seat) this.#devices.muted = this.#seat.muted ?? false;
  }
}
