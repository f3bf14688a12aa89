import type { OpenSocket, Socket } from "../src/connection.ts";
import type { ApiError, ErrorCode } from "../src/protocol.ts";

// biome-ignore lint/suspicious/noExplicitAny: a test looks into whatever was sent
type Loose = any;

/** One connection of the client as its instance sees it. */
export class FakeSocket implements Socket {
  readonly sent: { name: string; body: Loose; ack: (answer: unknown) => void }[] = [];
  isOpen = true;
  readonly #listeners: [string, (body: Loose) => void][] = [];
  readonly #anyListeners: ((name: string, body: unknown) => void)[] = [];

  constructor(readonly url: string) {}

  on(name: string, listener: (body: Loose) => void): void {
    this.#listeners.push([name, listener]);
  }

  onAny(listener: (name: string, body: unknown) => void): void {
    this.#anyListeners.push(listener);
  }

  emit(name: string, body: unknown, ack: (answer: unknown) => void): void {
    this.sent.push({ name, body, ack });
  }

  disconnect(): void {
    this.isOpen = false;
  }

  /** Something that Socket.IO itself says. */
  say(name: string, body?: unknown): void {
    for (const [each, listener] of this.#listeners) if (each === name) listener(body);
  }

  /** An event of the server. */
  tell(name: string, body: unknown): void {
    this.say(name, body);
    for (const listener of this.#anyListeners) listener(name, body);
  }

  /** The oldest request of this name that was not taken yet. */
  take(name: string): { body: Loose; answer(answer: object): void; refuse(error: ApiError): void } {
    const at = this.sent.findIndex((request) => request.name === name);
    const [request] = at < 0 ? [] : this.sent.splice(at, 1);
    if (!request) throw new Error(`${this.url} was not asked for ${name}`);
    return {
      body: request.body,
      answer: (answer) => request.ack({ ok: true, ...answer }),
      refuse: (error) => request.ack({ ok: false, error }),
    };
  }
}

export function fakeSockets(): { sockets: FakeSocket[]; open: OpenSocket } {
  const sockets: FakeSocket[] = [];
  const open: OpenSocket = (url, auth) => {
    const socket = new FakeSocket(url);
    sockets.push(socket);
    auth(() => socket.say("connect"));
    return socket;
  };
  return { sockets, open };
}

export function refusal(code: ErrorCode, more: Partial<ApiError> = {}): ApiError {
  return { code, message: "no", retryable: false, requestId: "r1", ...more };
}
