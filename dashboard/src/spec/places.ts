// Places in the text of a spec, which is JSON that somebody is still typing: what stands around a character, and where a pointer leads to.

/** What is around a character of a text. */
export interface Place {
  /** The keys and indexes that lead to the value or the object in which the character stands. */
  path: (string | number)[];
  /** What stands there: a key of the object, a value, or neither. */
  at: 'key' | 'value' | 'between';
  /** The text of the key or value around the character, from its quotation mark on; null where nothing has been typed there. */
  string: { from: number; to: number; text: string; closed: boolean } | null;
  /** The keys that the object has, without the one that the character stands in. */
  keys: string[];
  /** Whether the key is followed by a colon already. */
  named: boolean;
  /** The objects and lists around the character, outermost first: where each begins, and the keys that it has before the character. */
  around: Around[];
}

export interface Around {
  from: number;
  keys: string[];
}

interface Level {
  kind: '{' | '[';
  from: number;
  index: number;
  key: string | null;
  keys: string[];
  /** Whether a key is awaited, in an object. */
  awaits: boolean;
}

function unquoted(raw: string): string {
  try {
    return JSON.parse(`"${raw}"`) as string;
  } catch {
    return raw;
  }
}

/** Where a text in quotation marks ends: behind the closing one, or at the end of the line where there is none. */
function end(text: string, from: number): { to: number; closed: boolean } {
  for (let i = from + 1; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c === 92) i++;
    else if (c === 34) return { to: i + 1, closed: true };
    else if (c === 10) return { to: i, closed: false };
  }
  return { to: text.length, closed: false };
}

/**
 * Goes through a text from its beginning and tells each key and value where it begins, until visit says true. Texts that are no JSON
 * are read as well as they can be.
 */
function walk(text: string, visit: (what: 'key' | 'value' | 'close', from: number, to: number, levels: Level[], closed: boolean) => boolean | void) {
  const levels: Level[] = [];
  const begins = () => {
    const top = levels.at(-1);
    if (top?.kind === '[' && top.index < 0) top.index = 0;
  };
  for (let i = 0; i < text.length; i++) {
    const c = text[i] as string;
    const top = levels.at(-1);
    if (c === '"') {
      const e = end(text, i);
      if (top?.kind === '{' && top.awaits) {
        top.key = unquoted(text.slice(i + 1, e.closed ? e.to - 1 : e.to));
        top.keys.push(top.key);
        if (visit('key', i, e.to, levels, e.closed)) return;
      } else {
        begins();
        if (visit('value', i, e.to, levels, e.closed)) return;
      }
      i = e.to - 1;
    } else if (c === '{' || c === '[') {
      begins();
      if (visit('value', i, i + 1, levels, true)) return;
      levels.push({ kind: c, from: i, index: -1, key: null, keys: [], awaits: c === '{' });
    } else if (c === '}' || c === ']') {
      if (visit('close', i, i + 1, levels, true)) return;
      levels.pop();
    } else if (c === ',') {
      if (top?.kind === '[') top.index = Math.max(top.index, 0) + 1;
      else if (top) [top.awaits, top.key] = [true, null];
    } else if (c === ':') {
      if (top) top.awaits = false;
    } else if (/[-\w]/.test(c)) {
      let to = i + 1;
      while (to < text.length && /[-+.\w]/.test(text[to] as string)) to++;
      begins();
      if (visit('value', i, to, levels, true)) return;
      i = to - 1;
    }
  }
}

const around = (levels: Level[]): Around[] => levels.map((l) => ({ from: l.from, keys: [...l.keys] }));

/** What is around the character at an offset, which stands before it. */
export function placeAt(text: string, offset: number): Place {
  let found: Place | null = null;
  let levels: Level[] = [];
  const path = (of: Level[], whole: boolean) => {
    const all: (string | number)[] = [];
    for (const [i, l] of of.entries()) {
      if (!whole && i === of.length - 1 && l.kind === '{') break;
      all.push(l.kind === '{' ? (l.key ?? '') : Math.max(l.index, 0));
    }
    return all;
  };
  const string = (from: number, to: number, closed: boolean) => ({ from, to, text: unquoted(text.slice(from + 1, closed ? to - 1 : to)), closed });

  // Nothing behind the character says what it stands in, but for the end of the text in quotation marks around it.
  const before = text.slice(0, offset);
  walk(before, (what, from, to, now, closed) => {
    levels = now;
    if (to < offset || closed || text[from] !== '"') return false;
    const e = end(text, from);
    const s = string(from, e.to, e.closed);
    const top = now.at(-1);
    if (what === 'key') {
      found = { path: path(now, false), at: 'key', string: s, keys: top?.keys.slice(0, -1) ?? [], named: /^\s*:/.test(text.slice(e.to, e.to + 40)), around: around(now) };
    } else found = { path: path(now, true), at: 'value', string: s, keys: [], named: true, around: around(now) };
    return true;
  });
  if (found) {
    const f: Place = found;
    if (f.at === 'key') f.keys.push(...later(text, f.string?.to ?? offset));
    return f;
  }
  const top = levels.at(-1);
  const outside = around(levels);
  if (!top) return { path: [], at: 'between', string: null, keys: [], named: false, around: outside };
  const last = before.trimEnd().at(-1);
  if (top.kind === '{' && top.awaits) {
    const fits = last === '{' || last === ',';
    return { path: path(levels, false), at: fits ? 'key' : 'between', string: null, keys: [...top.keys, ...later(text, offset)], named: false, around: outside };
  }
  const awaits = last === ':' || (top.kind === '[' && (last === '[' || last === ','));
  return { path: path(levels, true), at: awaits ? 'value' : 'between', string: null, keys: [], named: true, around: outside };
}

/** The keys that an object has behind an offset within it. */
function later(text: string, offset: number): string[] {
  const out: string[] = [];
  let depth = 0;
  const stop = Math.min(text.length, offset + 200_000);
  for (let i = offset; i < stop; i++) {
    const c = text[i];
    if (c === '"') {
      const e = end(text, i);
      if (depth === 0 && /^\s*:/.test(text.slice(e.to, e.to + 40))) out.push(unquoted(text.slice(i + 1, e.closed ? e.to - 1 : e.to)));
      i = e.to - 1;
    } else if (c === '{' || c === '[') depth++;
    else if (c === '}' || c === ']') {
      if (depth-- === 0) break;
    }
  }
  return out;
}

/** The key or value at an offset with what leads to it, for what is said of it: path ends with the key itself. Null where there is none. */
export function wordAt(text: string, offset: number): { path: (string | number)[]; at: 'key' | 'value'; from: number; to: number; text: string; around: Around[] } | null {
  let found: ReturnType<typeof wordAt> = null;
  walk(text, (what, from, to, levels, closed) => {
    if (from > offset) return true;
    if (what === 'close' || text[from] !== '"' || to < offset) return false;
    const path = levels.map((l) => (l.kind === '{' ? (l.key ?? '') : Math.max(l.index, 0)));
    found = { path, at: what, from, to, text: unquoted(text.slice(from + 1, closed ? to - 1 : to)), around: around(levels) };
    return true;
  });
  return found;
}

/** Where a JSON pointer leads to in a text: the key where it ends at one, else the value; null where it leads nowhere. */
export function locate(text: string, pointer: string): number | null {
  const want = pointer.split('/').slice(1).map((s) => s.replaceAll('~1', '/').replaceAll('~0', '~'));
  let found: number | null = null;
  let key: number | null = null;
  let deepest = 0;
  walk(text, (what, from, _to, levels) => {
    const depth = levels.length;
    if (depth < deepest) return true; // what was led into has ended
    if (depth > want.length) return false;
    for (let i = Math.max(deepest - 1, 0); i < depth; i++) {
      const l = levels[i] as Level;
      if ((l.kind === '{' ? l.key : String(Math.max(l.index, 0))) !== want[i]) return false;
    }
    if (what === 'key' && depth === want.length) key = from;
    if (what === 'value') {
      if (depth === want.length) {
        found = key ?? from;
        return true;
      }
      deepest = Math.max(deepest, depth + 1);
    }
    return false;
  });
  return found;
}

/** The nearest place to where a pointer leads: that of the longest beginning of it that leads somewhere. */
export function nearest(text: string, pointer: string): number {
  for (let p = pointer; p !== ''; p = p.slice(0, p.lastIndexOf('/'))) {
    const at = locate(text, p);
    if (at !== null) return at;
  }
  return 0;
}
