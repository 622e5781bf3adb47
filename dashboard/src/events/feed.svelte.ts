// The list of events, newest first: what was loaded, and what the stream brings in front of it.

import { call, query } from '../api/client';
import type { StreamStatus } from '../api/stream';
import { Tail } from '../api/tail';
import type { StoredEvent } from '../api/types';
import { environment } from '../app/environment.svelte';
import { isObject } from '../data/json';
import { parameters, type Filters } from './filters';

export interface Row {
  event: StoredEvent;
  /** How many causes it stands under. */
  depth: number;
  /** When it came, in milliseconds of the page; 0 for what was loaded. */
  came: number;
}

/** The most rows that a list keeps while it grows at its head. Older ones are loaded again where they are looked at. */
const mostLive = 2000;
/** The most rows of a list: who scrolls further goes to a time. */
export const mostRows = 200_000;
const mostWaiting = 500;

interface Page {
  events: StoredEvent[];
  next: string | null;
  position: string;
}

/** How many links an event is away from what was asked for, 0 for what was asked for itself. */
function depthOf(e: StoredEvent): number {
  const by = e.metadata.implied_by;
  return isObject(by) ? Number(by.depth ?? 1) || 1 : 0;
}

/** Events, newest first, with what was implied under its cause. */
export function grouped(events: StoredEvent[], came: number): Row[] {
  const out: Row[] = [];
  let run: StoredEvent[] = [];
  const flush = () => {
    for (const e of run) out.push({ event: e, depth: depthOf(e), came });
    run = [];
  };
  for (const e of events) {
    const depth = depthOf(e);
    if (depth > 0) {
      run.push(e);
      continue;
    }
    if (run.length > 0 && run[0]?.metadata.correlation_id === e.metadata.correlation_id) {
      out.push({ event: e, depth: 0, came });
      run.reverse();
      flush();
    } else {
      flush();
      out.push({ event: e, depth: 0, came });
    }
  }
  flush();
  return out;
}

export class Feed {
  rows = $state.raw<Row[]>([]);
  next = $state<string | null>(null);
  busy = $state(true);
  failed = $state<unknown>(null);
  status = $state<StreamStatus>('Connecting');
  paused = $state(false);
  /** How many came while it is paused. */
  fresh = $state(0);
  /** How many were left out since the list was last complete, 0 where none was. */
  leftOut = $state(0);
  position = $state('');
  /** Events in each of the last seconds, the present one last. */
  seconds = $state.raw<number[]>(new Array<number>(60).fill(0));
  private stream: Tail | null = null;
  private abort: AbortController | null = null;
  private waiting: StoredEvent[] = [];
  private filters: Filters = { type: '', event: '', actor: '', target: '', correlation: '' };
  private second = 0;
  private timer: ReturnType<typeof setInterval>;

  constructor(private readonly attop: () => boolean) {
    this.timer = setInterval(() => this.tick(), 1000);
  }

  close() {
    clearInterval(this.timer);
    this.abort?.abort();
    this.stream?.close();
  }

  /** Shows what passes the filters: the newest ones, and what comes; or with before those before a position, and only a count of what comes. */
  async show(filters: Filters, before = '') {
    this.filters = filters;
    this.abort?.abort();
    this.stream?.close();
    this.stream = null;
    const mine = (this.abort = new AbortController());
    this.busy = true;
    this.failed = null;
    this.paused = before !== '';
    this.fresh = this.leftOut = 0;
    this.waiting = [];
    try {
      const page = await this.page(before || 'now', mine.signal);
      if (mine.signal.aborted) return;
      this.rows = grouped(page.events, 0);
      this.next = page.next;
      this.position = page.position;
      this.stream = new Tail({
        path: environment.api('events'),
        parameters: parameters(this.filters),
        after: page.position || '0',
        every: 1000,
        count: 50,
        events: (events, others) => this.took(events as StoredEvent[], others),
        status: (s) => (this.status = s),
      });
    } catch (e) {
      if (mine.signal.aborted) return;
      this.rows = [];
      this.next = null;
      this.failed = e;
    }
    this.busy = false;
  }

  /** Loads older ones. */
  async more() {
    if (this.busy || this.next === null || !this.abort || this.rows.length >= mostRows) return;
    const mine = this.abort;
    this.busy = true;
    try {
      // Who goes on scrolling gets larger pages.
      const page = await this.page(this.next, mine.signal, this.rows.length < 400 ? 100 : 1000);
      if (mine.signal.aborted) return;
      this.rows = [...this.rows, ...grouped(page.events, 0)];
      this.next = page.next;
    } catch (e) {
      if (mine.signal.aborted) return;
      this.failed = e;
    }
    this.busy = false;
  }

  pause() {
    this.paused = true;
    this.fresh = 0;
    if (this.leftOut > 0) void this.complete();
  }

  resume() {
    this.paused = false;
    if (this.fresh > this.waiting.length) void this.complete();
    else this.prepend(this.waiting);
    this.fresh = 0;
    this.waiting = [];
  }

  /** Loads the newest ones again, where some were left out. */
  private async complete() {
    if (!this.abort) return;
    const mine = this.abort;
    try {
      const page = await this.page('now', mine.signal);
      if (mine.signal.aborted) return;
      this.rows = grouped(page.events, 0);
      this.next = page.next;
      this.leftOut = 0;
    } catch (e) {
      if (!mine.signal.aborted) this.failed = e;
    }
  }

  private page(before: string, signal: AbortSignal, count = 100): Promise<Page> {
    return call<Page & object>(environment.api(`events${query({ before, count })}${this.filterText('&')}`), { signal });
  }

  private filterText(mark: string): string {
    const p = parameters(this.filters);
    return p ? mark + p : '';
  }

  private took(events: StoredEvent[], others: number) {
    const last = events[events.length - 1];
    if (!last) return;
    this.position = last.stream_id;
    this.second += events.length + others;
    // Who has scrolled down reads: what comes is counted, and nothing moves.
    if (this.paused || !this.attop()) {
      this.fresh += events.length + others;
      if (this.waiting.length < mostWaiting) this.waiting.push(...events);
      return;
    }
    this.leftOut += others;
    this.prepend(events);
  }

  private prepend(oldestFirst: StoredEvent[]) {
    if (oldestFirst.length === 0) return;
    const known = new Set(this.rows.slice(0, 50).map((r) => r.event.stream_id));
    const events = oldestFirst.filter((e) => !known.has(e.stream_id)).reverse();
    // What was implied by the newest one that is shown already goes under it.
    const oldest = events[events.length - 1];
    let again = 0;
    if (oldest && depthOf(oldest) > 0) {
      const id = oldest.metadata.correlation_id;
      while (again < 30 && this.rows[again] && id !== undefined && this.rows[again]?.event.metadata.correlation_id === id) again++;
    }
    const head = this.rows.slice(0, again).map((r) => r.event);
    head.sort((a, b) => compare(b.stream_id, a.stream_id));
    let rows = [...grouped([...events, ...head], performance.now()), ...this.rows.slice(again)];
    if (rows.length > mostLive && this.attop()) {
      rows = rows.slice(0, mostLive);
      this.next = rows.reduce((least, r) => (compare(r.event.stream_id, least) < 0 ? r.event.stream_id : least), rows[rows.length - 1]?.event.stream_id ?? '');
    }
    this.rows = rows;
  }

  private tick() {
    if (document.hidden) return;
    this.seconds = [...this.seconds.slice(1), this.second];
    this.second = 0;
if (this.leftOut > 0 && !this.paused && this.attop() && this.stream?.sampled === false) void this.complete();
  }
}

/** The order of two positions. */
export function compare(a: string, b: string): number {
  const [ams = '', an = ''] = a.split('-');
  const [bms = '', bn = ''] = b.split('-');
  return Number(ams) - Number(bms) || Number(an) - Number(bn);
}
