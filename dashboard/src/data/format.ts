// How times, ids and counts are written.

export type Zone = 'utc' | 'local';

const weekdays = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const months = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const two = (n: number) => String(n).padStart(2, '0');

interface Parts {
  year: number;
  month: number;
  day: number;
  weekday: number;
  hour: number;
  minute: number;
  second: number;
  ms: number;
}

function parts(t: Date, zone: Zone): Parts {
  if (zone === 'utc') {
    return {
      year: t.getUTCFullYear(), month: t.getUTCMonth(), day: t.getUTCDate(), weekday: t.getUTCDay(),
      hour: t.getUTCHours(), minute: t.getUTCMinutes(), second: t.getUTCSeconds(), ms: t.getUTCMilliseconds(),
    };
  }
  return {
    year: t.getFullYear(), month: t.getMonth(), day: t.getDate(), weekday: t.getDay(),
    hour: t.getHours(), minute: t.getMinutes(), second: t.getSeconds(), ms: t.getMilliseconds(),
  };
}

/** The time of day, with milliseconds where they are asked for: 16:24:07.120. */
export function clockTime(t: Date, zone: Zone, ms = false): string {
  const p = parts(t, zone);
  return `${two(p.hour)}:${two(p.minute)}:${two(p.second)}${ms ? `.${String(p.ms).padStart(3, '0')}` : ''}`;
}

/** Day and time in full: Tue 24 Nov 2026 09:41:00. */
export function fullTime(t: Date, zone: Zone): string {
  const p = parts(t, zone);
  return `${weekdays[p.weekday]} ${p.day} ${months[p.month]} ${p.year} ${clockTime(t, zone)}`;
}

/** A time as short as it may be beside now: 09:41:00 today, Tue 09:41 within the week, 24 Nov 09:41 within the year, 24 Nov 2025 before. */
export function shortTime(t: Date, zone: Zone, now: Date): string {
  const p = parts(t, zone);
  const n = parts(now, zone);
  const hm = `${two(p.hour)}:${two(p.minute)}`;
  if (p.year === n.year && p.month === n.month && p.day === n.day) return `${hm}:${two(p.second)}`;
  const days = (now.getTime() - t.getTime()) / 86_400_000;
  if (days >= 0 && days < 6) return `${weekdays[p.weekday]} ${hm}`;
  return p.year === n.year ? `${p.day} ${months[p.month]} ${hm}` : `${p.day} ${months[p.month]} ${p.year}`;
}

/** Both writings of a time, for whoever hovers over one of them. */
export function bothTimes(t: Date): string {
  return `${fullTime(t, 'utc')} UTC\n${fullTime(t, 'local')} ${Intl.DateTimeFormat().resolvedOptions().timeZone}`;
}

/** The time in a position such as 1795882010941-0, in which milliseconds come first. */
export function timeOf(position: string): Date {
  return new Date(Number(position.split('-')[0]));
}

/** How long something lasts: 4 min, 3 days. */
export function duration(ms: number): string {
  const s = Math.round(Math.abs(ms) / 1000);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.round(s / 60)} min`;
  if (s < 172_800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86_400)} days`;
}

/** A count with its thousands apart. */
export function count(n: number): string {
  return n.toLocaleString('en-US');
}

/** Bytes in the largest unit that leaves at least one. */
export function bytes(n: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let i = 0;
  let v = n;
  while (v >= 1000 && i < units.length - 1) {
    v /= 1000;
    i++;
  }
  return `${v < 10 && i > 0 ? v.toFixed(1) : Math.round(v)} ${units[i]}`;
}

/** The plural of a noun where it has one: 1 saga, 2 sagas, 2 deliveries. */
export function plural(n: number, noun: string): string {
  if (n === 1) return `${count(n)} ${noun}`;
  return `${count(n)} ${noun.endsWith('y') ? `${noun.slice(0, -1)}ies` : `${noun}s`}`;
}
