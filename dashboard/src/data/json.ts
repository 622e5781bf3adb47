// JSON as the server sent it: every number keeps its digits, every object its order. Data never go through JSON.parse, which rounds.

/** A number whose digits JavaScript would change, as it was written. */
export class Digits {
  constructor(readonly text: string) {}
  toString() {
    return this.text;
  }
}

export type Json = null | boolean | string | number | Digits | Json[] | JsonObject;
export interface JsonObject {
  [key: string]: Json;
}

/** The order of an object's keys, where JavaScript would have another one: it puts keys that look like integers first. */
const order = Symbol('order');

const maxDepth = 512;

/** Parses a JSON text. Objects have no prototype, so that a key such as `__proto__` is one like any other. Throws a SyntaxError. */
export function parse(text: string): Json {
  let at = 0;

  function fail(what: string): never {
    throw new SyntaxError(`${what} at character ${at}`);
  }
  function space() {
    for (;;) {
      const c = text.charCodeAt(at);
      if (c !== 32 && c !== 10 && c !== 13 && c !== 9) return;
      at++;
    }
  }
  function string(): string {
    const start = ++at;
    for (;;) {
      const c = text.charCodeAt(at);
      if (c === 34) return text.slice(start, at++);
      if (c === 92) break;
      if (Number.isNaN(c)) fail('a text without an end');
      at++;
    }
    let out = text.slice(start, at);
    for (;;) {
      const c = text.charCodeAt(at);
      if (Number.isNaN(c)) fail('a text without an end');
      if (c === 34) {
        at++;
        return out;
      }
      if (c !== 92) {
        const from = at;
        while (at < text.length && text.charCodeAt(at) !== 34 && text.charCodeAt(at) !== 92) at++;
        out += text.slice(from, at);
        continue;
      }
      const e = text[at + 1];
      at += 2;
      if (e === 'u') {
        out += String.fromCharCode(parseInt(text.slice(at, at + 4), 16));
        at += 4;
      } else {
        const plain = { '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }[e ?? ''];
        if (plain === undefined) fail('an unknown escape');
        out += plain;
      }
    }
  }
  function number(): number | Digits {
    const m = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
    m.lastIndex = at;
    const found = m.exec(text);
    if (!found) fail('no value');
    at = m.lastIndex;
    const n = Number(found[0]);
    return String(n) === found[0] ? n : new Digits(found[0]);
  }
  function value(depth: number): Json {
    if (depth > maxDepth) fail(`more than ${maxDepth} levels`);
    space();
    const c = text[at];
    if (c === '{') {
      const o: JsonObject = Object.create(null) as JsonObject;
      const keys: string[] = [];
      let reordered = false;
      at++;
      space();
      if (text[at] === '}') {
        at++;
        return o;
      }
      for (;;) {
        space();
        if (text[at] !== '"') fail('no key');
        const key = string();
        if (/^\d/.test(key)) reordered = true;
        if (!(key in o)) keys.push(key);
        space();
        if (text[at] !== ':') fail('no colon');
        at++;
        o[key] = value(depth + 1);
        space();
        if (text[at] === ',') {
          at++;
          continue;
        }
        if (text[at] !== '}') fail('neither a comma nor the end of an object');
        at++;
        if (reordered) Object.defineProperty(o, order, { value: keys });
        return o;
      }
    }
    if (c === '[') {
      const a: Json[] = [];
      at++;
      space();
      if (text[at] === ']') {
        at++;
        return a;
      }
      for (;;) {
        a.push(value(depth + 1));
        space();
        if (text[at] === ',') {
          at++;
          continue;
        }
        if (text[at] !== ']') fail('neither a comma nor the end of a list');
        at++;
        return a;
      }
    }
    if (c === '"') return string();
    for (const [word, v] of [
      ['true', true],
      ['false', false],
      ['null', null],
    ] as const) {
      if (text.startsWith(word, at)) {
        at += word.length;
        return v;
      }
    }
    return number();
  }

  const v = value(0);
  space();
  if (at < text.length) fail('something behind the value');
  return v;
}

export function isObject(v: Json | undefined): v is JsonObject {
  return typeof v === 'object' && v !== null && !Array.isArray(v) && !(v instanceof Digits);
}

/** The keys of an object in the order of the text. */
export function keys(o: JsonObject): string[] {
  return (o as { [order]?: string[] })[order] ?? Object.keys(o);
}

/** The members of an object or a list, with their keys or indexes. */
export function members(v: Json): [string, Json][] {
  if (Array.isArray(v)) return v.map((x, i) => [String(i), x]);
  if (isObject(v)) return keys(v).map((k) => [k, v[k] as Json]);
  return [];
}

/** The JSON text of a value, on one line or with an indentation. */
export function write(v: Json, indent = '', outer = ''): string {
  if (v === null || typeof v === 'boolean') return String(v);
  if (typeof v === 'string') return JSON.stringify(v);
  if (typeof v === 'number' || v instanceof Digits) return String(v);
  const inner = outer + indent;
  const parts = Array.isArray(v) ? v.map((x) => write(x, indent, inner)) : keys(v).map((k) => JSON.stringify(k) + (indent ? ': ' : ':') + write(v[k] as Json, indent, inner));
  const [open, close] = Array.isArray(v) ? '[]' : '{}';
  if (parts.length === 0) return `${open}${close}`;
  return indent ? `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${outer}${close}` : `${open}${parts.join(',')}${close}`;
}

export function equal(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (a === undefined || b === undefined || a === null || b === null) return false;
  if (a instanceof Digits || b instanceof Digits) return String(a) === String(b) && typeof a !== 'string' && typeof b !== 'string';
  if (typeof a !== 'object' || typeof b !== 'object') return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const m = members(a);
  const n = members(b);
  if (m.length !== n.length) return false;
  return m.every(([k, v]) => equal(v, Array.isArray(b) ? b[Number(k)] : (b as JsonObject)[k]));
}

/** A token of a JSON Pointer (RFC 6901). */
export function token(key: string): string {
  return key.replaceAll('~', '~0').replaceAll('/', '~1');
}

/** The value at a JSON Pointer, undefined where there is none. */
export function at(v: Json | undefined, pointer: string): Json | undefined {
  let now = v;
  for (const raw of pointer.split('/').slice(1)) {
    const key = raw.replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(now)) now = now[Number(key)];
    else if (isObject(now)) now = now[key];
    else return undefined;
  }
  return now;
}

// Characters that turn the direction of text around, or are not seen at all.
const invisible = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g; // eslint-disable-line no-control-regex

/** A text in which characters that nobody would see, or that turn others around, are named. */
export function visible(s: string): string {
  return s.replace(invisible, (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}
