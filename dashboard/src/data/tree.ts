// A JSON value as lines of a tree, with what differs from another value.

import { Digits, equal, isObject, members, token, visible, write, type Json } from './json';

export type Change = '' | 'added' | 'removed' | 'changed';

export interface Line {
  pointer: string;
  depth: number;
  /** The key or index; null at the top and at the ends of objects and lists. */
  key: string | null;
  /** Whether the key is an index. */
  index: boolean;
  /** The value, undefined at the end of an object or a list. */
  value: Json | undefined;
  /** What stood there before, where it differs. */
  before: Json | undefined;
  change: Change;
  /** What the line ends with: { or [ where members follow, their end, or nothing. */
  mark: '' | '{' | '[' | '}' | ']';
  /** How many members are folded away, null where nothing is. */
  folded: number | null;
}

/** The most lines of one value. What is beyond them stays folded. */
export const maxLines = 20_000;

/**
 * The lines of a value. With before, members that it has not are added, those that only it has are removed, and what is
 * unchanged is folded. open has the pointers whose folding somebody has changed: true for opened ones, false for folded ones.
 */
export function lines(value: Json, before: Json | undefined, open: ReadonlyMap<string, boolean>): Line[] {
  const out: Line[] = [];

  function walk(pointer: string, depth: number, key: string | null, index: boolean, v: Json, old: Json | undefined, change: Change) {
    const nested = Array.isArray(v) || isObject(v);
    const same = change === '' && (before === undefined || equal(v, old));
    const changed: Change = change !== '' || same ? change : nested && (Array.isArray(old) || isObject(old)) && Array.isArray(v) === Array.isArray(old) ? '' : 'changed';
    const line: Line = { pointer, depth, key, index, value: v, before: changed === 'changed' ? old : undefined, change: changed, mark: '', folded: null };
    out.push(line);
    if (!nested) return;
    const inner = members(v);
    const opened = open.get(pointer) ?? (depth === 0 || (before === undefined ? depth < 6 : !same || inner.length === 0) );
    if (inner.length === 0 || !opened || out.length > maxLines) {
      line.folded = inner.length;
      line.mark = Array.isArray(v) ? '[' : '{';
      return;
    }
    line.mark = Array.isArray(v) ? '[' : '{';
    for (const [k, x] of inner) {
      const had = changed === '' ? child(old, k) : undefined;
      const c: Change = changed !== '' ? (changed === 'changed' ? 'added' : changed) : before !== undefined && had === undefined ? 'added' : '';
      walk(`${pointer}/${token(k)}`, depth + 1, k, Array.isArray(v), x, had, c);
    }
    if (changed === '' && before !== undefined) {
      for (const [k, x] of members(old ?? null)) {
        if (child(v, k) === undefined) walk(`${pointer}/${token(k)}`, depth + 1, k, Array.isArray(v), x, undefined, 'removed');
      }
    }
    out.push({ pointer, depth, key: null, index: false, value: undefined, before: undefined, change: changed === 'changed' ? '' : changed, mark: Array.isArray(v) ? ']' : '}', folded: null });
  }

  walk('', 0, null, false, value, before, '');
  return out;
}

function child(v: Json | undefined, key: string): Json | undefined {
  if (Array.isArray(v)) return v[Number(key)];
  if (isObject(v)) return v[key];
  return undefined;
}

export type Kind = 'text' | 'number' | 'word' | 'none';

/** How a scalar is coloured. */
export function kind(v: Json | undefined): Kind {
  if (typeof v === 'string') return 'text';
  if (typeof v === 'number' || v instanceof Digits) return 'number';
  if (v === null || typeof v === 'boolean') return 'word';
  return 'none';
}

/** A scalar as it is shown, a long text cut. */
export function shown(v: Json | undefined, most = 200): string {
  if (v === undefined) return '';
  if (typeof v === 'string') {
    const s = v.length > most ? v.slice(0, most) : v;
    return `"${visible(write(s).slice(1, -1))}${v.length > most ? '…' : ''}"`;
  }
  if (Array.isArray(v)) return v.length === 0 ? '[]' : `[${v.length}]`;
  if (isObject(v)) return members(v).length === 0 ? '{}' : '{…}';
  return String(v);
}

/** The members of an event's data that say most, for a line of a list. */
export function preview(v: Json, most = 6): [string, string, Kind][] {
  if (!isObject(v)) return [['', shown(v, 60), kind(v)]];
  return members(v)
    .slice(0, most)
    .map(([k, x]) => [visible(k.slice(0, 40)), (typeof x === 'string' ? shown(x, 40).slice(1, -1) : shown(x, 40)), kind(x)]);
}
