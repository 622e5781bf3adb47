// An event that a spec accepts, for people to start from.

import { isObject, keys, write, type Json, type JsonObject } from './json';

export interface Example {
  type: string;
  event: string;
  id: string;
  actor: { type: string; id: string };
  data: Json;
}

const id = '7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05';
const formats: Record<string, string> = {
  date: '2026-11-24',
  'date-time': '2026-11-24T09:41:00Z',
  time: '09:41:00Z',
  email: 'ada@example.com',
  uri: 'https://example.com/',
  uuid: id,
};

/** An event type of a spec that can begin an aggregate, with the shortest data that its schema accepts; null where there is none. */
export function example(spec: JsonObject): Example | null {
  const actors = spec.agent_types;
  const types = spec.aggregate_types;
  if (!Array.isArray(actors) || typeof actors[0] !== 'string' || !isObject(types)) return null;
  // Events that cannot begin an aggregate come last, and short data first.
  let best: Example | null = null;
  let least = Infinity;
  for (const type of keys(types)) {
    const t = types[type];
    const events = isObject(t) ? t.events : null;
    if (!isObject(events)) continue;
    for (const event of keys(events)) {
      const e = events[event];
      if (event.startsWith('_') || !isObject(e)) continue;
      const data = make(e.schema ?? {}, spec, '', 0);
      if (data === undefined) continue;
      const found: Example = { type, event, id: 'global', actor: { type: actors[0], id: 'global' }, data };
      const begins = e.creates !== false && e.guards === undefined && e.requires === undefined && e.reads === undefined;
      const cost = write(data).length + (begins ? 0 : 1_000_000);
      if (cost < least) [best, least] = [found, cost];
    }
  }
  return best;
}

/** A small value that a schema accepts, undefined where none is known. */
function make(schema: Json, spec: JsonObject, name: string, depth: number): Json | undefined {
  if (schema === true) return {};
  if (!isObject(schema) || depth > 12) return undefined;
  if (typeof schema.$ref === 'string') {
    const of = schema.$ref.replace(/^#\/(\$defs|definitions)\//, '');
    const defs = spec.$defs;
    return isObject(defs) && defs[of] !== undefined ? make(defs[of], spec, name, depth + 1) : undefined;
  }
  if (schema.const !== undefined) return schema.const;
  for (const list of [schema.examples, schema.enum]) if (Array.isArray(list) && list.length > 0) return list[0];
  if (schema.default !== undefined) return schema.default;
  for (const list of [schema.oneOf, schema.anyOf]) if (Array.isArray(list) && list[0] !== undefined && schema.type === undefined) return make(list[0], spec, name, depth + 1);
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === 'array' || (type === undefined && schema.items !== undefined)) {
    const least = Number(schema.minItems ?? 0);
    const item = make(schema.items ?? {}, spec, name, depth + 1);
    if (item === undefined) return least > 0 ? undefined : [];
    return least > 8 ? undefined : Array.from({ length: Math.max(least, 1) }, () => item);
  }
  if (type === 'string') return text(schema, name);
  if (type === 'integer' || type === 'number') return number(schema);
  if (type === 'boolean') return true;
  if (type === 'null') return null;
  const out: JsonObject = {};
  const properties = isObject(schema.properties) ? schema.properties : {};
  const required = Array.isArray(schema.required) ? schema.required.filter((k): k is string => typeof k === 'string') : [];
  // What has to be there; of an event that asks for nothing, what it knows first.
  const wanted = required.length > 0 ? required : keys(properties).slice(0, 1);
  for (const k of wanted) {
    const v = make(properties[k] ?? {}, spec, k, depth + 1);
    if (v !== undefined) out[k] = v;
    else if (required.includes(k)) return undefined;
  }
  return out;
}

function text(schema: JsonObject, name: string): string | undefined {
  if (typeof schema.format === 'string' && formats[schema.format]) return formats[schema.format];
  const least = Number(schema.minLength ?? 0);
  const most = Number(schema.maxLength ?? Infinity);
  const given = /_?id$/.test(name) ? id : { currency: 'EUR', country: 'DE', email: 'ada@example.com', name: 'Ada', title: 'Time' }[name] ?? 'Hello';
  const tried = [given, 'Hello', 'EUR', 'A1', 'a', '1', '2026-11-24', '12345', id].map((s) => s.padEnd(least, 'o')).filter((s) => s.length <= most);
  if (typeof schema.pattern !== 'string') return tried[0] ?? '';
  try {
    const pattern = new RegExp(schema.pattern, 'u');
    return tried.find((s) => pattern.test(s));
  } catch {
    return undefined;
  }
}

function number(schema: JsonObject): number | undefined {
  const low = Number(schema.minimum ?? schema.exclusiveMinimum ?? 1);
  const high = Number(schema.maximum ?? schema.exclusiveMaximum ?? Infinity);
  let n = Math.min(Math.max(1, low), high);
  if (n === Number(schema.exclusiveMinimum)) n += 1;
  if (n === Number(schema.exclusiveMaximum)) n -= 1;
  const step = Number(schema.multipleOf ?? 1);
  if (step > 0 && Math.abs(n / step - Math.round(n / step)) > 1e-9) n = Math.ceil(n / step) * step;
  return Number.isFinite(n) ? n : undefined;
}
