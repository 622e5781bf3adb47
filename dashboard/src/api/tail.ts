// The newest events of an environment as they come. Up to some hundred a second all of them come by a stream; of more,
// which nobody could read, the newest are asked for once in a while, so that neither the server nor the browser has to
// handle all of them.

import { isObject, type Json, type JsonObject } from '../data/json';
import { call } from './client';
import { Stream, type StreamStatus } from './stream';

/** The most events a second that all are told of. */
export const readable = 150;

export interface TailOptions {
  /** The path of the events, below the API's. */
  path: string;
  /** Parameters of both the list and the stream, without a mark in front; '' for none. */
  parameters: string;
  /** The position to begin behind. */
  after: string;
  /** How often the newest are asked for while there are too many, and how many of them. */
  every: number;
  count: number;
  /** Called with events, the oldest first, and with how many others there were since the last call, more or less. */
  events: (events: JsonObject[], others: number) => void;
  status: (status: StreamStatus) => void;
}

interface Page {
  events: JsonObject[];
  position: string;
}

/** The milliseconds of a position. */
const timeOf = (e: JsonObject | undefined) => Number(String(e?.stream_id ?? '0').split('-')[0]);

/**
 * How many events came in some milliseconds of which a page has the newest, all of them unseen: as many as there would be
 * if all of the time were like that of the page.
 */
export function estimate(newestFirst: JsonObject[], elapsed: number): number {
  const span = timeOf(newestFirst[0]) - timeOf(newestFirst[newestFirst.length - 1]);
  return Math.max(newestFirst.length, Math.round((newestFirst.length * elapsed) / Math.max(span, 1)));
}

/** Behind which of the newest events a page that is in the order of time begins: those with greater positions are new. */
export function unseen(newestFirst: JsonObject[], last: string): JsonObject[] {
  const [ms, n] = last.split('-').map(Number);
  return newestFirst.filter((e) => {
    const [a, b] = String(e.stream_id).split('-').map(Number);
    return (a ?? 0) > (ms ?? 0) || (a === ms && (b ?? 0) > (n ?? 0));
  });
}

export class Tail {
  private stream: Stream | null = null;
  private last: string;
  private abort = new AbortController();
  private timer = 0;
  private asked = 0;
  private second = 0;
  private began = 0;

  constructor(private readonly o: TailOptions) {
    this.last = o.after;
    this.follow(o.after);
  }

  close() {
    this.abort.abort();
    clearTimeout(this.timer);
    this.stream?.close();
  }

  /** Whether some events only are told of. */
  get sampled(): boolean {
    return this.stream === null;
  }

  private query(more: string): string {
    return this.o.parameters ? `?${this.o.parameters}${more && `&${more}`}` : more && `?${more}`;
  }

  private follow(after: string) {
    this.second = 0;
    this.began = performance.now();
    this.stream = new Stream({
      path: `${this.o.path}/stream${this.query('')}`,
      after,
      most: () => Math.max(this.o.count, readable),
      status: this.o.status,
      events: (events) => {
        const all = events.length + (this.stream?.skipped ?? 0);
        if (this.stream) this.stream.skipped = 0;
        this.last = String(events[events.length - 1]?.stream_id ?? this.last);
        const now = performance.now();
        if (now - this.began > 1000) {
          this.began = now;
          this.second = 0;
        }
        this.second += all;
        this.o.events(events, all - events.length);
        if (this.second <= readable) return;
        this.stream?.close();
        this.stream = null;
        this.asked = now;
        this.wait();
      },
    });
  }

  private wait() {
    if (!this.abort.signal.aborted) this.timer = window.setTimeout(() => void this.ask(), this.o.every);
  }

  private async ask() {
    if (document.hidden) return this.wait();
    try {
      const page = await call<Page & object>(`${this.o.path}${this.query(`before=now&count=${this.o.count}`)}`, { signal: this.abort.signal });
      const now = performance.now();
      const elapsed = now - this.asked;
      this.asked = now;
      const fresh = unseen(page.events.filter((e: Json): e is JsonObject => isObject(e)), this.last);
      const all = fresh.length < page.events.length ? fresh.length : estimate(fresh, elapsed);
      if (fresh.length > 0) {
        this.last = String(fresh[0]?.stream_id);
        this.o.events([...fresh].reverse(), all - fresh.length);
      }
      this.o.status('Live');
      if ((all * 1000) / Math.max(elapsed, 1) < readable * 0.8) return this.follow(page.position || this.last);
    } catch {
      if (this.abort.signal.aborted) return;
      this.o.status('Reconnecting');
    }
    this.wait();
  }
}
