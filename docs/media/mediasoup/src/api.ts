// The API that Dais calls: docs/media/generic.openapi.json, line by line.

import { type Engine, type Member, missing, type Permissions, type RoomInfo } from "./engine.ts";
import { type Answer, type Call, json, Refusal } from "./http.ts";
import { isProved } from "./signature.ts";

/** Lets nobody but Dais use the engine. */
export function api(engine: Engine, secrets: readonly string[]): (call: Call) => Promise<Answer> {
  return async (call) => {
    if (!isProved(secrets, call)) throw new Refusal(401);
    const [first, router, second, participant, ...more] = call.segments;
    if (more.length > 0) throw new Refusal(404);
    if (first === "health") return health(engine, call);
    if (router === undefined) throw new Refusal(404);
    if (second === undefined) return ofRouter(engine, call, router);
    if (second !== "participants") throw new Refusal(404);
    if (participant !== undefined) return ofParticipant(engine, call, router, participant);
    if (call.method !== "GET") throw new Refusal(405);
    return { status: 200, body: engine.list(router) };
  };
}

function health(engine: Engine, call: Call): Answer {
  if (call.method !== "GET" || call.segments.length > 1) throw new Refusal(404);
  return { status: 200, body: { participants: engine.count() } };
}

async function ofRouter(engine: Engine, call: Call, router: string): Promise<Answer> {
  switch (call.method) {
    case "PUT":
      await engine.makeRouter(router, json<RoomInfo>(call));
      return { status: 200 };
    case "GET":
      engine.findRouter(router);
      return { status: 200 };
    case "DELETE":
      engine.closeRouter(router);
      return { status: 204 };
    default:
      throw new Refusal(405);
  }
}

async function ofParticipant(engine: Engine, call: Call, router: string, name: string): Promise<Answer> {
  if (name === "") throw missing("participant");
  switch (call.method) {
    case "PUT":
      return { status: 200, body: { data: await engine.letIn(router, name, json<Member>(call)) } };
    case "PATCH":
      await engine.setPermissions(router, name, json<{ permissions: Permissions }>(call).permissions);
      return { status: 204 };
    case "DELETE":
      engine.remove(router, name);
      return { status: 204 };
    default:
      throw new Refusal(405);
  }
}
