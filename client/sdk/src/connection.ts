import { io } from "socket.io-client";
import type { Clock } from "./clock.ts";
import { DaisError } from "./error.ts";
import type { Ack, ApiError, Auth, Events, Requests } from "./protocol.ts";
import { ACK_MS } from "./retry.ts";
import type { Tokens } from "./tokens.ts";

/** What is used of a Socket.IO client. */
export interface Socket {
  // biome-ignore lint/suspicious/noExplicitAny: Socket.IO hands over whatever came
  on(name: string, listener: (body: any) => void): unknown;
  onAny(listener: (name: string, body: unknown) => void): unknown;
  emit(name: string, body: unknown, ack: (answer: unknown) => void): unknown;
  disconnect(): unknown;
}
export type OpenSocket = (url: string, auth: (give: (auth: Auth) => void) => void) => Socket;

export interface Surroundings {
  clock: Clock;
  open: OpenSocket;
  tokens: Tokens;
  device: string;
  platform: string | undefined;
}

type Hear = (name: keyof Events, body: Events[keyof Events]) => void;

/** Opens the instance at a base URL, which may have a path of its own (`/i/{instance}`). Reconnecting is ours. */
export const openSocket: OpenSocket = (url, auth) => {
  const { origin, pathname } = new URL(url);
  return io(origin, {
    path: `${pathname.replace(/\/+$/, "")}/socket.io/`,
    auth,
    transports: ["websocket", "polling"],
    reconnection: false,
    timeout: ACK_MS,
    forceNew: true,
  });
};

/** One connection to one instance, from its opening to its loss. Another one takes its place, never itself again. */
export class Connection {
  readonly #around: Surroundings;
  readonly #socket: Socket;
  readonly #hearers = new Set<Hear>();
  readonly #unanswered = new Set<(error: DaisError) => void>();
  readonly #lost: () => void;
  #over: DaisError | null = null;
  readonly opened: Promise<void>;

  /** `lost` is told once, also when it never opened. */
  constructor(url: string, around: Surroundings, lost: () => void) {
    this.#around = around;
    this.#lost = lost;
    const { tokens, device, platform } = around;
    const auth = (token: string): Auth => ({ token, device, protocol: 1, ...(platform && { platform }) });
    this.#socket = around.open(url, (give) => {
      tokens.current().then(
        (token) => give(auth(token)),
        (error) => this.#end(new DaisError("UNAUTHENTICATED", `no token: ${error}`)),
      );
    });
    this.opened = new Promise((resolve, reject) => {
      const silent = new DaisError("UNREACHABLE", "the handshake took too long");
      const cancel = around.clock.after(ACK_MS, () => this.#end(silent));
      const fail = (error: DaisError) => {
        cancel();
        reject(error);
      };
      this.#unanswered.add(fail);
      this.#socket.on("connect", () => {
        if (!this.#unanswered.delete(fail)) return;
        cancel();
        resolve();
      });
    });
    // Whoever waits for it hears of it; nobody has to.
    this.opened.catch(() => {});
    this.#socket.on("connect_error", (error: Error) => this.#end(refusalOf(error)));
    this.#socket.on("disconnect", (reason) => this.#end(new DaisError("UNREACHABLE", String(reason))));
    this.#socket.on("auth:expiring", () => this.refresh().catch(() => {}));
    this.#socket.onAny((name, body) => {
      for (const hear of [...this.#hearers]) hear(name as keyof Events, body as Events[keyof Events]);
    });
  }

  get isOver(): boolean {
    return this.#over !== null;
  }

  /** Hears every event from now on, until the returned function is called. */
  hear(hear: Hear): () => void {
    this.#hearers.add(hear);
    return () => this.#hearers.delete(hear);
  }

  /**
   * Sends a request once. No ack in time is `TIMEOUT`, a connection that is lost before it `UNREACHABLE`. `taken` hears the
   * answer before any event that follows it.
   */
  request<Name extends keyof Requests>(
    name: Name,
    body: Requests[Name]["body"],
    taken?: (answer: Requests[Name]["answer"]) => void,
  ): Promise<Requests[Name]["answer"]> {
    return new Promise((resolve, reject) => {
      if (this.#over) return reject(this.#over);
      const fail = (error: DaisError) => {
        this.#unanswered.delete(fail);
        cancel();
        reject(error);
      };
      const late = new DaisError("TIMEOUT", `no answer to ${name}`, { retryable: true });
      const cancel = this.#around.clock.after(ACK_MS, () => fail(late));
      this.#unanswered.add(fail);
      this.#socket.emit(name, body, (answer) => {
        if (!this.#unanswered.delete(fail)) return;
        cancel();
        const ack = answer as Ack<Requests[Name]["answer"]>;
        if (!ack.ok) return reject(DaisError.of(ack.error));
        taken?.(ack);
        resolve(ack);
      });
    });
  }

  /** Gives the instance another token of the same user. */
  async refresh(): Promise<void> {
    const token = await this.#around.tokens.renew();
    await this.request("auth:refresh", { token });
  }

  close(): void {
    this.#end(new DaisError("ENDED", "the connection was closed"));
  }

  #end(error: DaisError): void {
    if (this.#over) return;
    this.#over = error;
    this.#socket.disconnect();
    for (const fail of [...this.#unanswered]) fail(error);
    this.#unanswered.clear();
    this.#hearers.clear();
    this.#lost();
  }
}

/** Why the handshake was refused, or that nobody was there to refuse it. */
function refusalOf({ message }: Error): DaisError {
  try {
    return DaisError.of(JSON.parse(message) as ApiError);
  } catch {
    return new DaisError("UNREACHABLE", message);
  }
}
