import { Refusal } from "../session.ts";

const ANSWER_MS = 8000;
/** A server may be set to forget a session that is silent for 10 s. */
const KEEPALIVE_MS = 4000;
/** How often, and with which pauses, a lost WebSocket is opened again while the media may still flow. */
const CLAIM_PAUSES_MS = [0, 500, 1500];

export type Json = Record<string, unknown>;
export interface Jsep {
  type: "offer" | "answer";
  sdp: string;
}
/** What a plugin says. */
export interface Said {
  data: Json;
  jsep?: Jsep;
}

interface Message extends Json {
  janus: string;
  transaction?: string;
  sender?: number;
  data?: { id: number };
  error?: { code: number; reason: string };
  plugindata?: { data: Json };
  jsep?: Jsep;
  candidate?: RTCIceCandidateInit & { completed?: boolean };
  reason?: string;
}

interface Waiting {
  /** A plugin's answer comes after an acknowledgement, or before it. */
  forPlugin: boolean;
  resolve: (message: Message) => void;
  reject: (error: unknown) => void;
}

/** A plugin of the session; set what is to be heard of it before the first message. */
export class Handle {
  onsaid: (said: Said) => void = () => {};
  oncandidate: (candidate: RTCIceCandidateInit | null) => void = () => {};
  onhangup: (reason: string) => void = () => {};
  readonly #send: (message: Json, forPlugin: boolean) => Promise<Message>;

  constructor(send: (message: Json, forPlugin: boolean) => Promise<Message>) {
    this.#send = send;
  }

  async ask(body: Json, jsep?: RTCSessionDescriptionInit | null): Promise<Said> {
    const message = { janus: "message", body, ...(jsep && { jsep }) };
    const { plugindata, jsep: answer } = await this.#send(message, true);
    return { data: plugindata?.data ?? {}, ...(answer && { jsep: answer }) };
  }

  /** `null`: there are no more. What gets lost of this shows in the connection that does not come about. */
  trickle(candidate: RTCIceCandidate | null): void {
    const { candidate: line, sdpMid, sdpMLineIndex } = candidate ?? {};
    const given = candidate ? { candidate: line, sdpMid, sdpMLineIndex } : { completed: true };
    this.#send({ janus: "trickle", candidate: given }, false).catch(() => {});
  }
}

/**
 * A session of the Janus API over WebSocket. When the WebSocket is lost the session is claimed over another one,
 * for as long as Janus keeps it, and the media connections go on.
 */
export class Link {
  readonly #url: string;
  readonly #token: string | undefined;
  readonly #lost: (error: unknown) => void;
  readonly #waiting = new Map<string, Waiting>();
  readonly #handles = new Map<number, Handle>();
  #socket: WebSocket | null = null;
  #session = 0;
  #transactions = 0;
  #keepalive = 0;
  #isClosed = false;

  private constructor(url: string, token: string | undefined, lost: (error: unknown) => void) {
    this.#url = url;
    this.#token = token;
    this.#lost = lost;
  }

  /** `lost` is called at most once, when an open session has ended. */
  static async open(url: string, token: string | undefined, lost: (error: unknown) => void): Promise<Link> {
    const link = new Link(url, token, lost);
    try {
      await link.#connect();
      link.#session = idOf(await link.#send({ janus: "create" }));
    } catch (error) {
      link.close();
      throw error;
    }
    link.#keepalive = setInterval(() => link.#keep(), KEEPALIVE_MS);
    return link;
  }

  /** `opaqueId` is for the handle that is a participant. */
  async attach(plugin: string, opaqueId?: string): Promise<Handle> {
    const request = { janus: "attach", plugin: `janus.plugin.${plugin}`, opaque_id: opaqueId };
    const id = idOf(await this.#send(request));
    const handle = new Handle((message, forPlugin) => this.#send({ ...message, handle_id: id }, forPlugin));
    this.#handles.set(id, handle);
    return handle;
  }

  /** Ends the session, and with it everything at Janus. */
  close(): void {
    if (this.#isClosed) return;
    // Whoever is in a room leaves it at once, and is not in the way of their own next session.
    if (this.#session && this.#socket?.readyState === WebSocket.OPEN)
      this.#send({ janus: "destroy" }).catch(() => {});
    this.#isClosed = true;
    clearInterval(this.#keepalive);
    this.#socket?.close();
    this.#fail(new Error("closed"));
  }

  async #connect(): Promise<void> {
    const socket = new WebSocket(this.#url, "janus-protocol");
    this.#socket = socket;
    await new Promise<void>((resolve, reject) => {
      const unreachable = () => reject(new Error("Janus cannot be reached"));
      const timer = setTimeout(() => {
        unreachable();
        socket.close();
      }, ANSWER_MS);
      socket.onopen = () => {
        clearTimeout(timer);
        resolve();
      };
      socket.onclose = () => {
        clearTimeout(timer);
        unreachable();
      };
    });
    socket.onmessage = ({ data }) => this.#hear(JSON.parse(data));
    socket.onclose = () => this.#dropped(socket);
  }

  async #dropped(socket: WebSocket): Promise<void> {
    if (socket !== this.#socket || this.#isClosed) return;
    this.#socket = null;
    this.#fail(new Error("the connection to Janus was lost"));
    if (!this.#session) return;
    for (const pause of CLAIM_PAUSES_MS) {
      await new Promise((resolve) => setTimeout(resolve, pause));
      if (this.#isClosed) return;
      try {
        await this.#connect();
        await this.#send({ janus: "claim" });
        return;
      } catch (error) {
        if (error instanceof Refusal) return this.#end(new Error("Janus has ended the session"));
      }
    }
    this.#end(new Error("the connection to Janus was lost"));
  }

  async #keep(): Promise<void> {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN) return;
    try {
      await this.#send({ janus: "keepalive" });
    } catch (error) {
      if (error instanceof Refusal) this.#end(error);
      // A WebSocket over which nothing comes any more may take minutes to find out.
      else if (socket === this.#socket) {
        socket.onclose = null;
        socket.close();
        this.#dropped(socket);
      }
    }
  }

  #end(error: unknown): void {
    if (this.#isClosed) return;
    this.close();
    this.#lost(error);
  }

  #fail(error: Error): void {
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }

  async #send(message: Json, forPlugin = false): Promise<Message> {
    if (this.#isClosed || this.#socket?.readyState !== WebSocket.OPEN)
      throw new Error("there is no connection to Janus");
    const transaction = `${++this.#transactions}`;
    const session = this.#session ? { session_id: this.#session } : {};
    const answer = new Promise<Message>((resolve, reject) => {
      this.#waiting.set(transaction, { forPlugin, resolve, reject });
    });
    this.#socket.send(JSON.stringify({ ...message, ...session, token: this.#token, transaction }));
    const timer = setTimeout(() => {
      this.#waiting.get(transaction)?.reject(new Error(`Janus does not answer: ${message.janus}`));
      this.#waiting.delete(transaction);
    }, ANSWER_MS);
    try {
      return await answer;
    } finally {
      clearTimeout(timer);
    }
  }

  #hear(message: Message): void {
    const { janus, transaction = "", error, plugindata, jsep } = message;
    const waiting = this.#waiting.get(transaction);
    if (waiting) {
      if (janus === "ack" && waiting.forPlugin) return;
      this.#waiting.delete(transaction);
      const { error_code: code, error: reason } = plugindata?.data ?? {};
      if (error) waiting.reject(new Refusal(`Janus: ${error.code} ${error.reason}`));
      else if (code) waiting.reject(new Refusal(`Janus: ${code} ${reason}`));
      else waiting.resolve(message);
      return;
    }
    const handle = this.#handles.get(message.sender ?? 0);
    if (janus === "timeout") this.#end(new Error("Janus has ended the session"));
    else if (janus === "event" && plugindata)
      handle?.onsaid({ data: plugindata.data, ...(jsep && { jsep }) });
    else if (janus === "trickle" && message.candidate)
      handle?.oncandidate(message.candidate.completed ? null : message.candidate);
    else if (janus === "hangup" || janus === "detached") handle?.onhangup(message.reason ?? janus);
  }
}

function idOf({ data }: Message): number {
  if (!data) throw new Error("Janus names nothing that was made");
  return data.id;
}
