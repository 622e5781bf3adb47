// The address: which page it names, and changing it.

import { base } from './base';

/** A path without the escapes of an address; as it is, where they stand for no text. */
function decoded(path: string): string {
  try {
    return decodeURI(path);
  } catch {
    return path;
  }
}

class Address {
  /** The path below the dashboard's, without a slash in front. */
  path = $state('');
  query = $state(new URLSearchParams());

  constructor() {
    this.read();
    addEventListener('popstate', () => this.read());
    document.addEventListener('click', (e) => this.follow(e));
  }

  private read() {
    const path = decoded(location.pathname);
    this.path = path.startsWith(base) ? path.slice(base.length) : '';
    this.query = new URLSearchParams(location.search);
  }

  /** Follows a link to another page of the dashboard without loading the document again. */
  private follow(e: MouseEvent) {
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    const a = (e.target as Element | null)?.closest?.('a');
    if (!a || a.target || a.hasAttribute('download') || a.origin !== location.origin || !a.pathname.startsWith(base)) return;
    if (a.hash && a.pathname === location.pathname && a.search === location.search) return;
    e.preventDefault();
    this.go(a.pathname.slice(base.length) + a.search);
  }

  /** Goes to another page, as a link does. path is relative to the dashboard's. */
  go(path: string) {
    history.pushState(null, '', base + path);
    this.read();
    scrollTo(0, 0);
  }

  /** Changes the address of the page that is shown. Back does not return to the former one. */
  replace(path: string) {
    history.replaceState(null, '', base + path);
    this.read();
  }

  /** Changes parameters of the address of the page that is shown; null takes one away. */
  set(changes: Record<string, string | number | null>) {
    const q = new URLSearchParams(this.query);
    for (const [k, v] of Object.entries(changes)) {
      if (v === null || v === '') q.delete(k);
      else q.set(k, String(v));
    }
    const text = q.toString().replaceAll('%3A', ':');
    this.replace(location.pathname.slice(base.length) + (text ? `?${text}` : ''));
  }
}

export const address = new Address();

/** The address of a page as links have it. */
export function href(path: string): string {
  return base + path;
}

/**
 * The path below the dashboard's that somebody may be led to after they have signed in: next where it is one, else ''.
 */
export function nextPath(next: string | null): string {
  if (!next || !next.startsWith(base) || /[\\\u0000-\u0020]/.test(next)) return ''; // eslint-disable-line no-control-regex
  const u = new URL(next, location.origin);
  if (u.origin !== location.origin || !u.pathname.startsWith(base) || u.pathname.startsWith(`${base}login`)) return '';
  return u.pathname.slice(base.length) + u.search;
}
