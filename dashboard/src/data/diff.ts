// What differs between two values, as the list of changes that the server gives for a version: pointer, before, after.

import type { Change } from '../api/types';
import { equal, isObject, members, token, write, type Json, type JsonObject } from './json';

/** The most changes of a list. */
export const mostChanges = 200;
const mostText = 512;

/** The changes that lead from one value to another; more is how many others there are. */
export function diff(before: Json | undefined, after: Json | undefined): { changes: Change[]; more: number } {
  const changes: Change[] = [];
  let more = 0;

  const add = (pointer: string, a: Json | undefined, b: Json | undefined) => {
    if (changes.length >= mostChanges) {
      more++;
      return;
    }
    const c: Change = { pointer, change: a === undefined ? 'added' : b === undefined ? 'removed' : 'changed' };
    if (a !== undefined) c.before = write(a).slice(0, mostText);
    if (b !== undefined) c.after = write(b).slice(0, mostText);
    changes.push(c);
  };
  const walk = (pointer: string, a: Json | undefined, b: Json | undefined) => {
    if (equal(a, b)) return;
    const lists = Array.isArray(a) && Array.isArray(b);
    if (!lists && !(isObject(a) && isObject(b))) {
      add(pointer, a, b);
      return;
    }
    const old = new Map(members(a as Json));
    for (const [k, v] of members(b as Json)) {
      walk(`${pointer}/${token(k)}`, old.get(k), v);
      old.delete(k);
    }
    for (const [k, v] of old) walk(`${pointer}/${token(k)}`, v, undefined);
  };
  walk('', before, after);
  return { changes, more };
}

/** A state without the two times that the engine keeps in it. */
export function withoutTimes(state: Json): Json {
  if (!isObject(state)) return state;
  return pick(state, (k) => k !== 'created_at' && k !== 'updated_at');
}

function pick(o: JsonObject, keep: (key: string) => boolean): JsonObject {
  const out = Object.create(null) as JsonObject;
  for (const [k, v] of members(o)) if (keep(k)) out[k] = v;
  return out;
}

/** A former state with the times of a later one, so that they do not count as changes. */
export function withTimesOf(before: Json, after: Json): Json {
  if (!isObject(before) || !isObject(after)) return before;
  const out = pick(before, () => true);
  for (const k of ['created_at', 'updated_at']) {
    if (k in after) out[k] = after[k] as Json;
    else delete out[k];
  }
  return out;
}
