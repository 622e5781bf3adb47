// The time bar: one stop a version, by order and not by time.

export interface Stop {
  length: number;
  /** Where it stands, in per cent of the bar. */
  at: number;
}

/** The most versions that have a stop each. Where there are more, a strip shows how many there are. */
export const mostStops = 60;

export function place(length: number, of: number): number {
  return of <= 1 ? 0 : ((length - 1) / (of - 1)) * 100;
}

export function stops(of: number): Stop[] {
  if (of > mostStops) return [];
  return Array.from({ length: of }, (_, i) => ({ length: i + 1, at: place(i + 1, of) }));
}

/** The versions that columns of a strip stand for, first and last of each: one column a version, or as many as have room. */
export function columns(of: number, width: number): [first: number, last: number][] {
  const many = Math.max(1, Math.min(of, Math.floor(width / 4)));
  return Array.from({ length: many }, (_, i) => [1 + Math.floor((i * of) / many), Math.floor(((i + 1) * of) / many)]);
}

/** How high a column is whose version has changed so many members, -1 where that is not known. */
export function heightOf(changes: number): number {
  return changes < 0 ? 6 : Math.min(20, 6 + Math.round(3 * Math.log2(1 + changes)));
}

/** The versions that are named below the bar: the first, the current and the last, and the next where it has room. */
export function named(current: number, of: number): { length: number; where: 'first' | 'current' | 'between' | 'last' }[] {
  const room = 16; // per cent that a name takes
  const out: { length: number; where: 'first' | 'current' | 'between' | 'last' }[] = [];
  const far = (a: number, b: number) => Math.abs(place(a, of) - place(b, of)) >= room;
  if (current !== 1 && far(1, current)) out.push({ length: 1, where: 'first' });
  out.push({ length: current, where: current === 1 ? 'first' : current === of ? 'last' : 'current' });
  if (current < of && far(current, of)) {
    const next = current + 1;
    if (next < of && far(current, next) && far(next, of)) out.push({ length: next, where: 'between' });
    out.push({ length: of, where: 'last' });
  }
  return out;
}

/** The version that was there at a time: the last one whose event is not later; null before the first. times are those of the versions, in order. */
export function versionAt(times: readonly number[], at: number): number | null {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if ((times[mid] as number) <= at) low = mid + 1;
    else high = mid;
  }
  return low === 0 ? null : low;
}

/** A version of an address: a whole number from 1 to the newest; the newest else. */
export function versionOf(text: string | null, newest: number): number {
  const n = text !== null && /^\d{1,9}$/.test(text) ? Number(text) : newest;
  return Math.min(Math.max(n, 1), Math.max(newest, 1));
}
