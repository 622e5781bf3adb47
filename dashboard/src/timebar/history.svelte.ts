// The versions of an aggregate: their events and changes, a hundred a request, and states as they are looked at.

import { ApiError, call, part, query } from '../api/client';
import { Stream } from '../api/stream';
import type { StoredEvent, VersionChanges } from '../api/types';
import { environment } from '../app/environment.svelte';
import { diff, withoutTimes } from '../data/diff';
import type { Json } from '../data/json';
import { follow, numberIn, type Point } from './values';

const chunk = 100;
const mostStates = 300;
/** The most versions whose changes are followed for a plot, a hundred a request; and of more, how many of them are looked at. */
const mostFollowed = 3000;
const mostSampled = 200;
/** What changes do not say of each version. */
const unfollowed = new Set(['/created_at', '/updated_at']);

export interface Values {
  points: Point[];
  /** How many versions there are. */
  of: number;
  /** Whether only some of them were looked at. */
  sampled: boolean;
}

export class History {
  /** How many versions there are. */
  newest = $state(0);
  failed = $state<unknown>(null);
  /** Counts what was loaded, so that what depends on it looks again. */
  private loaded = $state(0);
  private versions = new Map<number, VersionChanges>();
  private asked = new Map<number, Promise<void>>();
  private states = new Map<number, Promise<Json>>();
  private stream: Stream | null = null;
  private ended = new AbortController();
  private of: string;

  constructor(
    type: string,
    id: string,
    /** Called once new versions are there. */
    private readonly grew: () => void,
  ) {
    this.of = `aggregates/${part(type)}/${part(id)}`;
  }

  close() {
    this.ended.abort();
    this.stream?.close();
  }

  /** Loads how many versions there are and the newest of them, and follows new ones. */
  async begin() {
    this.failed = null;
    try {
      this.newest = Number((await call<{ length: number } & object>(environment.api(`${this.of}/length`), { signal: this.ended.signal })).length);
      if (this.newest === 0) throw new ApiError(404, 'aggregate_not_found', 'This aggregate has no events.', '', null);
      await this.load(this.newest);
      const last = this.versions.get(this.newest)?.event.stream_id;
      if (this.ended.signal.aborted || !last) return;
      this.stream = new Stream({
        path: environment.api(`${this.of}/events/stream`),
        after: last,
        events: (events) => void this.took(events as StoredEvent[]),
        status: () => {},
      });
    } catch (e) {
      if (!this.ended.signal.aborted) this.failed = e;
    }
  }

  private took(events: StoredEvent[]) {
    for (const event of events) {
      this.newest++;
      this.versions.set(this.newest, { length: this.newest, event, changes: [], more: -1 });
    }
    this.loaded++;
    // What they changed comes with a request of its own.
    for (let n = this.newest - events.length + 1; n <= this.newest; n += chunk) void this.fetch(n, Math.min(chunk, this.newest - n + 1));
    this.grew();
  }

  /** A version, undefined while it is loaded. */
  at(length: number): VersionChanges | undefined {
    void this.loaded;
    return this.versions.get(length);
  }

  /** Loads the hundred versions around one. */
  load(length: number): Promise<void> {
    const first = Math.floor((length - 1) / chunk) * chunk + 1;
    let p = this.asked.get(first);
    if (!p) {
      p = this.fetch(first, chunk).catch((e: unknown) => {
        this.asked.delete(first);
        throw e;
      });
      this.asked.set(first, p);
    }
    return p;
  }

  private async fetch(first: number, count: number): Promise<void> {
    const path = environment.api(`${this.of}/changes${query({ from: first, count })}`);
    const r = await call<{ changes: VersionChanges[] } & object>(path, { signal: this.ended.signal });
    for (const v of r.changes) this.versions.set(Number(v.length), v);
    this.loaded++;
  }

  /** The state after a number of events. */
  state(length: number): Promise<Json> {
    let p = this.states.get(length);
    if (!p) {
      p = call<{ data: Json } & object>(environment.api(`${this.of}?length=${length}`), { signal: this.ended.signal }).then((r) => r.data);
      p.catch(() => this.states.delete(length));
      this.states.set(length, p);
      if (this.states.size > mostStates) {
        for (const old of this.states.keys()) {
          this.states.delete(old);
          break;
        }
      }
    }
    return p;
  }

  /** What leads from the state of one version to that of another. */
  async between(from: number, to: number): Promise<Pick<VersionChanges, 'changes' | 'more'>> {
    const [a, b] = await Promise.all([from === 0 ? Promise.resolve({} as Json) : this.state(from), this.state(to)]);
    return diff(withoutTimes(a), withoutTimes(b));
  }

  /** Which version was there at a time, by the server's reckoning; null before the first. */
  async versionAt(ms: number): Promise<number | null> {
    try {
      const r = await call<{ metadata: { length: number } } & object>(environment.api(`${this.of}?at=${Math.floor(ms / 1000)}`), { signal: this.ended.signal });
      return Number(r.metadata.length);
    } catch (e) {
      if (e instanceof ApiError && e.status === 404) return null;
      throw e;
    }
  }

  /**
   * A number of the state over the versions, for a plot: in each version, from what each has changed, up to some thousand of them; of more, in some
   * of them. begun is called with how many of how many were looked at.
   */
  async values(pointer: string, begun: (done: number, of: number) => void = () => {}): Promise<Values> {
    const n = this.newest;
    if (n > mostFollowed || unfollowed.has(pointer)) {
      const lengths = n <= mostSampled ? Array.from({ length: n }, (_, i) => i + 1) : [...new Set(Array.from({ length: mostSampled }, (_, i) => 1 + Math.round((i * (n - 1)) / (mostSampled - 1))))];
      const points: Point[] = [];
      for (let i = 0; i < lengths.length; i += 4) {
        begun(i, lengths.length);
        const some = lengths.slice(i, i + 4);
        const states = await Promise.all(some.map((l) => this.state(l)));
        for (const [j, s] of states.entries()) points.push({ length: some[j] as number, value: numberIn(s, pointer) });
      }
      return { points, of: n, sampled: lengths.length < n };
    }
    for (let first = 1; first <= n; first += 3 * chunk) {
      begun(first - 1, n);
      await Promise.all([0, 1, 2].map((i) => first + i * chunk).filter((l) => l <= n).map((l) => this.load(l)));
    }
    const points: Point[] = [];
    let value: number | null = null;
    for (let l = 1; l <= n; l++) {
      const v = this.versions.get(l);
      const next: number | null | undefined = v ? follow(value, pointer, v) : undefined;
      value = next === undefined ? numberIn(await this.state(l), pointer) : next;
      points.push({ length: l, value });
    }
    return { points, of: n, sampled: false };
  }
}
