import type { Handle, Jsep, Json, Said } from "./link.ts";

/** Without a candidate of its own a connection never fails by itself. */
const CONNECT_MS = 20_000;

/** The media connection of a handle. */
export class Leg {
  readonly connection: RTCPeerConnection;
  readonly #handle: Handle;
  /** Candidates of Janus's that came before its description. */
  #early: (RTCIceCandidateInit | null)[] = [];
  readonly #deadline: number;

  /** `ended` is called when it has failed, or Janus ended it. */
  constructor(
    handle: Handle,
    configuration: RTCConfiguration,
    changed: () => void,
    ended: (error: Error) => void,
  ) {
    this.#handle = handle;
    const connection = new RTCPeerConnection(configuration);
    this.connection = connection;
    connection.onicecandidate = ({ candidate }) => handle.trickle(candidate);
    const fail = () => ended(new Error("the media connection failed"));
    this.#deadline = setTimeout(fail, CONNECT_MS);
    connection.onconnectionstatechange = () => {
      changed();
      if (connection.connectionState === "connected") clearTimeout(this.#deadline);
      if (connection.connectionState === "failed") fail();
    };
    handle.oncandidate = (candidate) => {
      if (connection.remoteDescription) this.#add(candidate);
      else this.#early.push(candidate);
    };
    handle.onhangup = (reason) => ended(new Error(`Janus ended the media connection: ${reason}`));
  }

  /** Offers what the connection has by now with a request. */
  async offer(body: Json): Promise<Said> {
    await this.connection.setLocalDescription();
    const said = await this.#handle.ask(body, this.connection.localDescription);
    if (said.jsep) await this.#describe(said.jsep);
    return said;
  }

  /** Answers an offer of Janus's with a request. */
  async answer(offer: Jsep, body: Json): Promise<void> {
    await this.#describe(offer);
    await this.connection.setLocalDescription();
    await this.#handle.ask(body, this.connection.localDescription);
  }

  close(): void {
    clearTimeout(this.#deadline);
    this.#handle.onhangup = () => {};
    this.connection.close();
  }

  async #describe(jsep: Jsep): Promise<void> {
    await this.connection.setRemoteDescription(jsep);
    for (const candidate of this.#early.splice(0)) this.#add(candidate);
  }

  /** One that is of no use is no loss: there are others, or the connection fails. */
  #add(candidate: RTCIceCandidateInit | null): void {
    this.connection.addIceCandidate(candidate).catch(() => {});
  }
}
