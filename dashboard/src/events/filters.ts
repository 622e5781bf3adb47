// The filters of the page Events: they are its address, and the parameters of the feed.

export interface Filters {
  type: string;
  event: string;
  actor: string;
  target: string;
  correlation: string;
}

export const filterNames = ['type', 'event', 'actor', 'target', 'correlation'] as const;

/** The filters in an address. */
export function filtersOf(q: URLSearchParams): Filters {
  const of = (name: string) => q.get(name)?.trim() ?? '';
  return { type: of('type'), event: of('event'), actor: of('actor'), target: of('target'), correlation: of('correlation') };
}

/** The filters as parameters, without a mark in front; '' where none is set. */
export function parameters(f: Filters): string {
  return filterNames
    .filter((n) => f[n] !== '')
    .map((n) => `${n}=${encodeURIComponent(f[n]).replaceAll('%3A', ':')}`)
    .join('&');
}

/** A text as one word of a shell. */
export function shellWord(text: string): string {
  return /^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The command that reads the same events by the data plane. */
export function curlOf(url: string, f: Filters, count = 100): string {
  const p = parameters(f);
  return curl(`${url}/_events?before=now&count=${count}${p ? `&${p}` : ''}`);
}

/** A request of the data plane with the key in $J17_KEY. */
export function curl(url: string): string {
  return `curl ${url.startsWith('$') ? `"${url}"` : `'${url.replaceAll("'", '%27')}'`} -H "Authorization: Bearer $J17_KEY"`;
}

/** The command of j17 that follows the same events. */
export function tailOf(url: string, f: Filters): string {
  const flags = filterNames.filter((n) => f[n] !== '' && n !== 'correlation').map((n) => ` --${n} ${shellWord(f[n])}`);
  return `J17_URL=${shellWord(url)} j17 events tail${flags.join('')}`;
}

/**
 * Where somebody wants to go: a position, behind which it begins, or a time. null for what is neither. Times without a zone are read in the
 * zone that the page shows.
 */
export function placeOf(text: string, utc: boolean, now: Date): { before: string } | { event: string } | null {
  const t = text.trim();
  if (/^\d{10,16}-\d{1,10}$/.test(t)) return { event: t };
  const at = timeOf(t, utc, now);
  return at === null ? null : { before: `${at}-0` };
}

/** The milliseconds of a time such as 16:24, 2026-11-24 09:41:00 or RFC 3339; null for what is none. */
export function timeOf(text: string, utc: boolean, now: Date): number | null {
  const t = text.trim();
  const hm = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?$/.exec(t);
  if (hm) {
    const [h, m, s, ms] = [Number(hm[1]), Number(hm[2]), Number(hm[3] ?? 0), Number((hm[4] ?? '0').padEnd(3, '0'))];
    if (h > 23 || m > 59 || s > 59) return null;
    return utc ? Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate(), h, m, s, ms) : new Date(now.getFullYear(), now.getMonth(), now.getDate(), h, m, s, ms).getTime();
  }
  const day = /^(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?)\s*(Z|UTC|[+-]\d{2}:\d{2})?)?$/i.exec(t);
  if (!day) return null;
  const zone = day[3] ? (/^(z|utc)$/i.test(day[3]) ? 'Z' : day[3]) : utc ? 'Z' : '';
  const at = Date.parse(`${day[1]}T${day[2] ?? '00:00'}${zone}`);
  return Number.isNaN(at) ? null : at;
}
