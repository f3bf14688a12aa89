// What clients call, with the token of their grant. mediasoup-client's events fit these calls one to one.

import type { types } from "mediasoup";
import type { Guest } from "./guest.ts";
import { type Answer, type Call, json, Refusal } from "./http.ts";
import type { Rooms } from "./rooms.ts";

interface Connect {
  dtlsParameters: types.DtlsParameters;
}

interface Produce {
  kind: types.MediaKind;
  rtpParameters: types.RtpParameters;
}

interface Consume {
  producer: string;
  rtpCapabilities: types.RtpCapabilities;
}

export function clients(rooms: Rooms): (call: Call) => Promise<Answer> {
  return async (call) => {
    if (call.method === "OPTIONS") return { status: 204 };
    const token = /^Bearer (.+)$/.exec(String(call.headers.authorization))?.[1];
    const guest = token === undefined ? undefined : rooms.byToken(token);
    if (!guest) throw new Refusal(401);
    try {
      return { status: 200, body: await answer(rooms, guest, call) };
    } catch (error) {
      // mediasoup checks what it is given, and throws these.
      if (error instanceof TypeError || (error instanceof Error && error.name === "UnsupportedError")) {
        throw new Refusal(400, { error: error.message });
      }
      throw error;
    }
  };
}

async function answer(rooms: Rooms, guest: Guest, call: Call): Promise<unknown> {
  const [, what, id, action] = call.segments;
  switch (`${call.method} ${[what, id && "{id}", action].filter(Boolean).join("/")}`) {
    case "GET ":
      return { rtpCapabilities: guest.rtpCapabilities, others: rooms.othersOf(guest) };
    case "POST transports": {
      const { id, iceParameters, iceCandidates, dtlsParameters } = await guest.createTransport();
      return { id, iceParameters, iceCandidates, dtlsParameters };
    }
    case "POST transports/{id}/connect":
      await guest.transport(id ?? "").connect({ dtlsParameters: json<Connect>(call).dtlsParameters });
      return {};
    case "POST transports/{id}/produce": {
      const { kind, rtpParameters } = json<Produce>(call);
      const producer = await guest.produce(guest.transport(id ?? ""), kind, rtpParameters);
      return { id: producer.id };
    }
    case "POST transports/{id}/consume": {
      const { producer, rtpCapabilities } = json<Consume>(call);
      const consumer = await guest.consume(guest.transport(id ?? ""), producer, rtpCapabilities);
      const { kind, rtpParameters } = consumer;
      return { id: consumer.id, producerId: producer, kind, rtpParameters };
    }
    case "POST consumers/{id}/resume":
      await guest.resume(id ?? "");
      return {};
    default:
      throw new Refusal(404);
  }
}
