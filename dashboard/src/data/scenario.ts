// One version of an aggregate as a scenario that `j17 test` runs.

import type { StoredEvent } from '../api/types';
import { isObject, keys, write, type Json, type JsonObject } from './json';

function object(of: Record<string, Json | undefined>): JsonObject {
  const o = Object.create(null) as JsonObject;
  for (const [k, v] of Object.entries(of)) if (v !== undefined) o[k] = v;
  return o;
}

const actorOf = (e: StoredEvent) => (isObject(e.metadata.actor) ? `${String(e.metadata.actor.type)}:${String(e.metadata.actor.id)}` : undefined);

/** The scenario: given the events before it, when the event is written, then this is the state. Times of the state are left out, which no other run has. */
export function scenario(before: readonly StoredEvent[], event: StoredEvent, state: Json): string {
  const one = (e: StoredEvent) => object({ key: e.key, type: e.type, data: e.data, actor: actorOf(e) });
  const data = Object.create(null) as JsonObject;
  if (isObject(state)) for (const k of keys(state)) if (k !== 'created_at' && k !== 'updated_at') data[k] = state[k] as Json;
  const of = object({
    name: `${event.key.slice(0, event.key.indexOf(':'))}.${event.type}, version ${before.length + 1}`,
    given: before.length > 0 ? before.map(one) : undefined,
    when: one(event),
    then: object({ state: object({ [event.key]: data }) }),
  });
  return write([of], '  ');
}
