// The language of specs, for completion and hover: which keys a place takes, what they mean, which names and paths a spec has. The table
// is language.json, which a test of the compiler writes from what the compiler and the documentation say.

import { isObject, keys as keysOf, type Json, type JsonObject } from '../data/json';
import table from './language.json';
import type { Around, Place } from './places';

interface Entry {
  is: string;
  about: string;
  form?: string;
}
const kinds = table.kinds as Record<string, Record<string, Entry>>;
const forms = Object.keys(kinds).filter((k) => k.startsWith('operator '));

/** What stands below a key of a kind. keys are those that the object has before it. */
function below(kind: string, key: string, keys: string[]): string {
  if (kind.startsWith('{')) return kind.slice(1, -1);
  if (kind === 'handler' || kind === 'operation') {
    if (key === 'wasm') return 'wasm handler';
    return kinds.operation?.[key]?.is ?? kinds['operation if']?.[key]?.is ?? 'anything';
  }
  if (kind === 'match') return kinds.predicate?.[key]?.is ?? 'value';
  if (kind === 'sources') return 'source';
  if (kind === 'index') return kinds.words?.[key]?.is ?? 'anything';
  if (kind === 'value' || kind === 'selected') {
    const is = kinds[kind]?.[key]?.is ?? beside(keys)?.[key]?.is ?? 'value';
    return is === 'value' ? kind : is;
  }
  if (kind === 'anything') return kind;
  return kinds[kind]?.[key]?.is ?? 'anything';
}

/** What stands beside the operator that is among keys. */
function beside(keys: string[]): Record<string, Entry> | undefined {
  const form = forms.find((f) => keys.includes(f.slice('operator '.length)));
  return form ? kinds[form] : undefined;
}

/** What an element of a list is. */
function element(kind: string): string {
  if (kind.startsWith('[')) return kind.slice(1, -1);
  if (kind === 'handler') return 'operation';
  if (kind === 'sources') return 'array source';
  if (kind === 'array') return 'value';
  return kind;
}

/** The kind of what a path leads to. around has the keys of the objects on the way. */
export function kindOf(path: (string | number)[], around: Around[]): string {
  let kind = 'spec';
  for (const [i, step] of path.entries()) kind = typeof step === 'number' ? element(kind) : below(kind, step, around[i]?.keys ?? []);
  return kind;
}

/**
 * The keys that an object of a kind may have, where it has some already. Of an object whose end has not been typed yet, what follows seems to be
 * part of it: keys that such an object cannot have do not count.
 */
function known(kind: string, has: string[]): Record<string, Entry> {
  const one = (of: Record<string, Entry> | undefined) => (has.some((k) => of && k in of) ? {} : (of ?? {}));
  if (kind === 'handler' || kind === 'operation') {
    if (has.includes('if') || has.includes('then')) return kinds['operation if'] ?? {};
    return one(kinds.operation);
  }
  if (kind === 'predicate' || kind === 'match') return one(kinds.predicate);
  if (kind === 'value' || kind === 'selected') return beside(has) ?? one(kinds[kind]);
  if (kind === 'index') return kinds.words ?? {};
  if (kind === 'array' || kind === 'path' || kind === 'id') return {};
  return kinds[kind] ?? {};
}

// --- The names of a spec

const at = (v: Json | undefined, ...path: (string | number)[]): Json | undefined =>
  path.reduce<Json | undefined>((x, p) => (Array.isArray(x) ? x[Number(p)] : isObject(x) ? x[p] : undefined), v);
const names = (v: Json | undefined): string[] => (isObject(v) ? keysOf(v) : []);

/** Members below a value, with what is known of each. */
export interface Members {
  [name: string]: { about: string; of: Members };
}

/** The members of data that a schema declares. */
export function schemaMembers(schema: Json | undefined, spec: Json, root = schema, depth = 0): Members {
  const out: Members = {};
  if (!isObject(schema) || depth > 6) return out;
  const ref = schema.$ref;
  if (typeof ref === 'string' && ref.startsWith('#/')) {
    const path = ref.slice(2).split('/').map((s) => s.replaceAll('~1', '/').replaceAll('~0', '~'));
    Object.assign(out, schemaMembers(at(root, ...path) ?? at(spec, ...path), spec, root, depth + 1));
  }
  for (const list of [schema.allOf, schema.anyOf, schema.oneOf]) if (Array.isArray(list)) for (const s of list) Object.assign(out, schemaMembers(s, spec, root, depth + 1));
  for (const k of names(schema.properties)) {
    const s = at(schema.properties, k);
    const type = at(s, 'type') ?? (at(s, 'enum') ? 'one of some values' : '');
    out[k] = { about: Array.isArray(type) ? type.join(' or ') : String(type), of: schemaMembers(s, spec, root, depth + 1) };
  }
  return out;
}

/** The members of the state of an aggregate type, as far as its handlers say. */
export function stateMembers(spec: Json, type: string): Members {
  const out: Members = { created_at: { about: 'when the first event happened, in Unix seconds', of: {} }, updated_at: { about: 'when the last event happened, in Unix seconds', of: {} } };
  const put = (target: string, of: Members, about: string): Members => {
    let to = out;
    for (const step of target === '' ? [] : target.split('.')) {
      const name = step.replace(/\[-?\d+\]/g, '');
      if (!name) break;
      to = (to[name] ??= { about, of: {} }).of;
    }
    for (const [k, v] of Object.entries(of)) to[k] ??= v;
    return to;
  };
  const events = at(spec, 'aggregate_types', type, 'events');
  for (const event of names(events)) {
    const schema = at(events, event, 'schema');
    const valued = (v: Json | undefined): Members => {
      if (typeof v === 'string' && v.startsWith('$.data')) {
        let m = schemaMembers(schema, spec);
        for (const step of v.replace(/\?$/, '').split('.').slice(2)) m = m[step]?.of ?? {};
        return m;
      }
      if (!isObject(v)) return {};
      if (Array.isArray(v.$merge)) return Object.assign({}, ...v.$merge.map(valued)) as Members;
      if (typeof v.$ === 'string') return valued(v.$);
      if (names(v).some((k) => k.startsWith('$'))) return {};
      return Object.fromEntries(names(v).map((k) => [k, { about: `written by ${event}`, of: valued(v[k]) }]));
    };
    const run = (ops: Json | undefined, depth = 0) => {
      for (const op of Array.isArray(ops) ? ops : [ops]) {
        if (!isObject(op) || depth > 20) continue;
        if (op.if !== undefined) {
          run(op.then, depth + 1);
          run(op.else, depth + 1);
          continue;
        }
        const name = names(op)[0] ?? '';
        const body = op[name];
        const target = at(body, 'target');
        if (typeof target !== 'string') continue;
        put(target, name === 'set' || name === 'merge' ? valued(at(body, 'value')) : {}, `written by ${event}, ${name}`);
      }
    };
    run(at(events, event, 'handler'));
  }
  return out;
}

const metadata: Members = {
  timestamp: { about: 'when the event happened, in Unix seconds', of: {} },
  actor: { about: 'who caused it', of: { type: { about: 'one of agent_types', of: {} }, id: { about: 'its id', of: {} } } },
  target: { about: 'whom it is about, where there is one', of: { type: { about: 'one of target_types', of: {} }, id: { about: 'its id', of: {} } } },
  correlation_id: { about: 'what it belongs to', of: {} },
};
const happened = (data: Members): Members => ({
  key: { about: 'its key, type:id', of: {} }, id: { about: 'the half of its key behind the colon', of: {} }, type: { about: 'its type', of: {} }, data: { about: 'its data', of: data }, metadata: { about: 'its metadata', of: metadata },
});

export interface Path {
  path: string;
  about: string;
}

const about = (path: string, other = '') => (table.paths as Record<string, string>)[path] ?? other;

/** All paths below one, it included. */
function spread(root: string, what: string, of: Members, out: Path[], depth = 4) {
  if (out.length >= 600) return;
  out.push({ path: root, about: what });
  if (depth > 0) for (const [k, v] of Object.entries(of)) if (/^[^.[\]?$*][^.[\]?]*$/.test(k)) spread(root === '' ? k : `${root}.${k}`, v.about, v.of, out, depth - 1);
}

/** The names with a $ that are bound around a place, which begins at offset at of the text. */
function bindings(text: string, around: Around[], to: number): string[] {
  const out = new Set<string>();
  const from = around[4]?.from ?? to; // that of the event type, saga or projection
  for (const m of text.slice(from, Math.min(text.length, to + 2000)).matchAll(/"(?:as|name)"\s*:\s*"(\$\w+)"/g)) out.add(m[1] as string);
  if (/"(?:map|filter|update_where|upsert|remove|every|some|find|\$sum|\$count)"/.test(text.slice(from, to))) out.add('$item');
  return [...out];
}

/** The paths that a value may have at a place. */
export function pathsAt(spec: Json, path: (string | number)[], kind: string, text: string, around: Around[], offset: number): Path[] {
  const out: Path[] = [];
  const [top, a, b, c, part] = path.map(String);
  const dataOf = (type: string, event: string) => schemaMembers(at(spec, 'aggregate_types', type, 'events', event, 'schema'), spec);
  const typeOf = (v: Json | undefined) => (typeof v === 'string' ? v : '');
  const event = (data: Members) => {
    spread('$.data', about('$.data'), data, out);
    spread('$.metadata', about('$.metadata'), metadata, out);
    for (const p of ['$.key', '$.id', '$.type']) out.push({ path: p, about: about(p, 'the half of the key behind the colon') });
  };
  if (top === 'aggregate_types' && a && b === 'events' && c) {
    const state = () => stateMembers(spec, a);
    if (kind === 'target') {
      spread('', 'the whole state', state(), out);
      return out;
    }
    event(dataOf(a, c));
    if (part === 'tags' || part === 'unique' || part === 'geo' || part === 'reads') return part === 'geo' ? out.filter((p) => p.path.startsWith('$.data')) : out;
    spread('@', about('@'), state(), out);
    spread('$.state', about('$.state'), state(), out);
    if (part !== 'handler') {
      const reads = at(spec, 'aggregate_types', a, 'events', c, 'reads');
      for (const r of names(reads)) spread(`$.reads.${r}`, about('$.reads.name'), stateMembers(spec, typeOf(at(reads, r, 'aggregate_type'))), out);
    }
    if (kind === 'array') spread('', '', state(), out);
  } else if (top === 'modules' && a === 'sagas' && b) {
    const saga = at(spec, 'modules', 'sagas', b);
    event(dataOf(typeOf(at(saga, 'trigger', 'aggregate_type')), typeOf(at(saga, 'trigger', 'event_type'))));
    spread('$prev', 'what finished the step before', happened({}), out);
    for (const s of (at(saga, 'steps') as Json[] | undefined) ?? []) {
      const name = typeOf(at(s, 'name'));
      if (name) spread(`$context.${name}`, `what finished the step ${name}`, happened({}), out, 1);
    }
    spread('$error', 'why the saga has failed', Object.fromEntries(['step', 'code', 'requirement', 'message'].map((k) => [k, { about: '', of: {} }])), out);
  } else if (top === 'projections' && a) {
    const sources = at(spec, 'projections', a, 'sources');
    out.push({ path: '$key', about: 'the aggregate that there is a result for' });
    if (Array.isArray(sources)) for (const s of sources) spread(`$.${typeOf(at(s, 'as') ?? at(s, 'aggregate'))}`, '', stateMembers(spec, typeOf(at(s, 'aggregate'))), out);
    for (const s of names(sources)) {
      const type = typeOf(at(sources, s, 'type')) || typeOf(at(spec, 'projections', a, 'for_each'));
      spread(`$.${s}`, `the state of ${type}`, stateMembers(spec, type), out);
    }
    const include = at(spec, 'projections', a, 'include');
    for (const i of names(include)) spread(`$.${i}`, 'included', stateMembers(spec, typeOf(at(include, i)).split(':')[0] ?? ''), out);
  } else if (top === 'listeners') event({});
  for (const name of bindings(text, around, offset)) out.push({ path: name, about: about('$name', 'a binding') });
  return out;
}

// --- What may be typed at a place

export interface Proposal {
  label: string;
  detail?: string;
  info?: string;
  /** What is written; a | in it is where the cursor goes. */
  insert: string;
  kind: 'property' | 'enum' | 'variable' | 'type' | 'keyword';
}

/** What a value of a kind begins with, with | for the cursor. */
function blank(is: string, key: string): string {
  if (is.startsWith('{') || is in kinds || is === 'sources' || is === 'match') return is === 'value' || is === 'selected' ? (key.startsWith('$') ? '[|]' : '"|"') : '{|}';
  if (is.startsWith('[') || is === 'handler') return '[|]';
  if (is === 'flag' || is.startsWith('true|')) return '|';
  if (is === 'number' || is === 'anything' || is === 'schema type') return '|';
  return '"|"';
}

const quoted = (s: string) => JSON.stringify(s);

/** The text of a member that stands beside a place, '' where there is none. */
function sibling(text: string, around: Around[], offset: number, key: string): string {
  const from = around.at(-1)?.from ?? 0;
  const m = new RegExp(`"${key}"\\s*:\\s*"([^"\\n]*)"`);
  return m.exec(text.slice(from, offset))?.[1] ?? m.exec(text.slice(offset, offset + 400))?.[1] ?? '';
}

/** What may stand at a place of the text of a spec. spec is what the text last said, when it was JSON. */
export function proposals(text: string, offset: number, place: Place, spec: Json): Proposal[] {
  if (place.at === 'between') return [];
  const kind = kindOf(place.path, place.around);
  if (place.at === 'key') {
    if (kind.startsWith('{')) return [];
    const out: Proposal[] = [];
    for (const [key, e] of Object.entries(known(kind, place.keys))) {
      if (place.keys.includes(key)) continue;
      const is = below(kind, key, place.keys);
      out.push({ label: key, detail: /^(operation|predicate) /.test(is) || shown(is) === key ? '' : shown(is), info: plain(e.about), insert: place.named ? quoted(key) : `${quoted(key)}: ${blank(is, key)}`, kind: 'property' });
    }
    if (kind === 'schema' && out.length === 0) return [];
    return out;
  }
  const texts = (all: string[], what: Proposal['kind'], info: (s: string) => string = () => '') => all.map((s): Proposal => ({ label: s, info: info(s), insert: quoted(s), kind: what }));
  const types = names(at(spec, 'aggregate_types'));
  const eventsOf = (type: string) => names(at(spec, 'aggregate_types', type, 'events'));
  switch (kind) {
    case 'aggregate':
      return texts(types, 'type', (t) => `An aggregate type with ${eventsOf(t).length} event types.`);
    case 'event': {
      // In a list of events the type stands beside the list.
      const around = typeof place.path.at(-1) === 'number' ? place.around.slice(0, -1) : place.around;
      const type = sibling(text, around, offset, 'aggregate_type');
      const all = eventsOf(type);
      return texts(all.length > 0 ? all : [...new Set(types.flatMap(eventsOf))], 'type', () => (type ? `An event of ${type}.` : ''));
    }
    case 'event pattern':
      return texts(['*', ...types.flatMap((t) => [`${t}.*`, ...eventsOf(t).map((e) => `${t}.${e}`)])], 'type');
    case 'geo type name':
      return texts(['point', 'polygon', ...names(at(spec, 'geo_types'))], 'enum');
    case 'unique set':
      return texts([...new Set(Object.values((at(spec, 'aggregate_types', place.path[1] ?? '', 'events') ?? {}) as JsonObject).flatMap((e) => names(at(e, 'unique'))))], 'variable');
    case 'schema type':
      return texts(table.types, 'enum');
    case 'schema format':
      return texts(table.formats, 'enum');
    case 'schema reference':
      return texts(names(at(spec, '$defs')).map((d) => `#/$defs/${d}`), 'type');
    case 'flag':
      return place.string ? [] : ['true', 'false'].map((s) => ({ label: s, insert: s, kind: 'keyword' }));
    case 'name':
      if (place.path.at(-2) === 'required') return texts(names(at(spec, ...place.path.slice(0, -2), 'properties')), 'variable');
      return [];
    case 'index': {
      const select = at(spec, ...place.path.slice(0, 2), 'select');
      return texts(names(select), 'variable');
    }
    case 'value': case 'selected': case 'path': case 'array': case 'target': case 'id': case 'match': case 'text':
      if (kind === 'text' && place.path.at(-1) !== 'query') return [];
      return pathsAt(spec, place.path, kind, text, place.around, offset).map((p) => ({ label: p.path, detail: p.path === '' ? 'the whole state' : '', info: plain(p.about), insert: quoted(p.path), kind: 'variable' }));
  }
  if (kind.includes('|')) {
    return kind.split('|').map((w): Proposal => {
      const bare = w === 'true' || w === 'false' || w.startsWith('"');
      return { label: w.replaceAll('"', ''), insert: bare ? w : quoted(w), kind: 'enum' };
    });
  }
  return [];
}

/** What is said of the key or the text at a place: a name, what it is, and a sentence; null where nothing is known. */
export function explain(word: { path: (string | number)[]; at: 'key' | 'value'; text: string; around: Around[] }, text: string, offset: number, spec: Json): { name: string; is: string; about: string } | null {
  const parent = word.path.slice(0, -1);
  if (word.at === 'key') {
    const kind = kindOf(parent, word.around);
    const types = names(at(spec, 'aggregate_types'));
    if (kind === '{aggregate type}' && types.includes(word.text)) return { name: word.text, is: 'aggregate type', about: `Its events are ${names(at(spec, ...word.path, 'events')).join(', ')}.` };
    if (kind === '{event type}') return { name: `${String(word.path[1])}.${word.text}`, is: 'event type', about: membersSaid(schemaMembers(at(spec, ...word.path, 'schema'), spec), 'Its data') };
    const keys = word.around.at(-1)?.keys ?? [];
    const e = known(kind, kind === 'operation' || kind === 'handler' || kind === 'predicate' || kind === 'match' ? keys.filter((k) => k !== word.text && k === 'if') : keys.filter((k) => k !== word.text))[word.text] ?? kinds[kind]?.[word.text];
    return e ? { name: word.text, is: shown(below(kind, word.text, keys)), about: plain(e.about) } : null;
  }
  const kind = kindOf(word.path, word.around);
  if (/^[$@]/.test(word.text) || kind === 'target') {
    const path = word.text.replace(/\?$/, '').replace(/\[(-?\d+|\*)\]/g, '');
    const all = pathsAt(spec, word.path, kind, text, word.around, offset);
    const found = all.find((p) => p.path === path) ?? all.filter((p) => p.path !== '' && path.startsWith(`${p.path}.`)).sort((x, y) => y.path.length - x.path.length)[0];
    return found ? { name: word.text, is: kind === 'target' ? 'target' : 'path', about: `${found.path === path ? '' : `${found.path}: `}${plain(found.about)}` } : null;
  }
  if (kind === 'aggregate') return { name: word.text, is: 'aggregate type', about: `Its events are ${names(at(spec, 'aggregate_types', word.text, 'events')).join(', ')}.` };
  if (kind === 'event') {
    const around = typeof word.path.at(-1) === 'number' ? word.around.slice(0, -1) : word.around;
    const type = sibling(text, around, offset, 'aggregate_type');
    return { name: `${type}.${word.text}`, is: 'event type', about: membersSaid(schemaMembers(at(spec, 'aggregate_types', type, 'events', word.text, 'schema'), spec), 'Its data') };
  }
  return null;
}

function membersSaid(m: Members, what: string): string {
  const all = Object.entries(m).map(([k, v]) => (v.about ? `${k} (${v.about})` : k));
  return all.length > 0 ? `${what}: ${all.join(', ')}.` : `${what} have no declared members.`;
}

/** What a value is, in words. */
function shown(is: string): string {
  if (is.startsWith('[')) return `list of ${shown(is.slice(1, -1))}`;
  if (is.startsWith('{')) return `${shown(is.slice(1, -1))} by name`;
  return is === 'handler' ? 'operations' : is.replace(/^(operation|predicate) .*/, '$1').replaceAll('|', ', ');
}

/** A text of the documentation without the marks of code. */
const plain = (s: string) => s.replaceAll('`', '');
