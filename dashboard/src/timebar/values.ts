// The values of a member over the versions of an aggregate.

import type { VersionChanges } from '../api/types';
import { at, Digits, parse, type Json } from '../data/json';

export interface Point {
  length: number;
  value: number | null;
}

/** A number as a plot draws it, null for what is none. */
export function number(v: Json | undefined): number | null {
  return typeof v === 'number' ? v : v instanceof Digits ? Number(v.text) : null;
}

/** The number at a pointer of a state, null where there is none. */
export function numberIn(state: Json, pointer: string): number | null {
  return number(at(state, pointer));
}

/**
 * The number at a pointer after a version, from the one before it and what the version has changed; undefined where the changes do not tell,
 * because they are cut or not all of them are there.
 */
export function follow(before: number | null, pointer: string, v: Pick<VersionChanges, 'changes' | 'more'>): number | null | undefined {
  for (const c of v.changes) {
    if (c.pointer !== pointer && !pointer.startsWith(`${c.pointer}/`)) continue;
    if (c.change === 'removed' || c.after === undefined) return null;
    try {
      return number(at(parse(c.after), pointer.slice(c.pointer.length)));
    } catch {
      return undefined;
    }
  }
  return v.more ? undefined : before;
}
