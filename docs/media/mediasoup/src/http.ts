// The little of HTTP that both halves of this server need: a call comes in, an answer goes out.

import { createServer, type IncomingMessage, type Server } from "node:http";
import type { SignedRequest } from "./signature.ts";

/** Largest body that is read. */
const MOST_BYTES = 256 * 1024;

export interface Call extends SignedRequest {
  /** The path's segments, decoded. */
  segments: string[];
}

export interface Answer {
  status: number;
  body?: unknown;
}

/** Thrown anywhere, it becomes the answer. */
export class Refusal extends Error {
  readonly answer: Answer;

  constructor(status: number, body?: unknown) {
    super(`refused with ${status}`);
    this.answer = { status, body };
  }
}

/** A call's body as JSON; what it holds is for the handler to check. */
export function json<T>(call: Call): T {
  try {
    return JSON.parse(call.body.toString("utf8"));
  } catch {
    throw new Refusal(400, { error: "the body is no JSON" });
  }
}

/** A server whose first path segment says who handles the call. */
export function serve(handlers: Record<string, (call: Call) => Promise<Answer>>): Server {
  return createServer(async (request, response) => {
    let answer: Answer;
    try {
      const call = await read(request);
      const handler = handlers[call.segments[0] ?? ""];
      answer = handler ? await handler(call) : { status: 404 };
    } catch (error) {
      if (!(error instanceof Refusal)) console.error("a call failed:", error);
      answer = error instanceof Refusal ? error.answer : { status: 500 };
    }
    // Browsers call from the pages of the app. They prove themselves with a token, not with cookies.
    const headers = {
      "access-control-allow-origin": "*",
      "access-control-allow-headers": "authorization, content-type",
      ...(answer.body === undefined ? {} : { "content-type": "application/json" }),
    };
    response.writeHead(answer.status, headers);
    response.end(answer.body === undefined ? undefined : JSON.stringify(answer.body));
  });
}

async function read(request: IncomingMessage): Promise<Call> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > MOST_BYTES) throw new Refusal(413);
    chunks.push(chunk);
  }
  const path = request.url ?? "/";
  let segments: string[];
  try {
    segments = path.split("/").slice(1).map(decodeURIComponent);
  } catch {
    throw new Refusal(400);
  }
  return {
    method: request.method ?? "",
    path,
    headers: request.headers,
    body: Buffer.concat(chunks),
    segments,
  };
}
