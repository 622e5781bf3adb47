import { describe, expect, it, vi } from 'vitest';
import type { DryRun } from '../api/schema';

vi.mock('../app/environment.svelte', () => ({ environment: {} }));
vi.mock('../api/client', () => ({ ApiError: class extends Error {}, call: vi.fn(), query: vi.fn(), send: vi.fn() }));
const { builds } = await import('./specs');

type Tried = Pick<DryRun, 'projections' | 'changes'>;
const projection = (change: string, rows: number): Tried => ({ changes: [], projections: [{ name: 'p', change, price: { rows, entries: rows, bytes: 0, seconds: 0, exact: true } }] });

describe('builds', () => {
  it.each<[string, Tried, boolean]>([
    ['nothing', { changes: [] }, false],
    ['a handler', { changes: [{ change: 'changed', what: 'event type', name: 'a.b', keys: ['handler'] }] }, false],
    ['a projection with rows', projection('added', 3), true],
    ['a projection that reads other states', projection('changed', 3), true],
    ['a projection without an index', projection('added', 0), false],
    ['a projection that goes', projection('removed', 3), false],
    ['unique values', { changes: [{ change: 'changed', what: 'event type', name: 'a.b', keys: ['unique'] }] }, true],
    ['an event type that goes with its unique values', { changes: [{ change: 'removed', what: 'event type', name: 'a.b', keys: ['unique'] }] }, false],
  ])('%s', (_, tried, want) => expect(builds(tried)).toBe(want));
});
