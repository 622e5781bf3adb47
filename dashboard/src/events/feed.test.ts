import { expect, test, vi } from 'vitest';
import type { StoredEvent } from '../api/types';

vi.stubGlobal('document', { documentElement: { dataset: {} }, querySelector: () => null, addEventListener: () => {} });
vi.stubGlobal('localStorage', { getItem: () => null });
const { compare, grouped } = await import('./feed.svelte');

const e = (id: string, correlation: string, depth = 0) =>
  ({ stream_id: id, key: 'a:1', type: 'x', data: {}, metadata: { correlation_id: correlation, ...(depth ? { implied_by: { key: 'a:1', event_type: 'x', depth } } : {}) } }) as unknown as StoredEvent;

test('what was implied stands under its cause, in the order of time', () => {
  const rows = grouped([e('6-0', 'c'), e('5-2', 'b', 2), e('5-1', 'b', 1), e('5-0', 'b'), e('4-1', 'a', 1)], 0);
  expect(rows.map((r) => [r.event.stream_id, r.depth])).toEqual([['6-0', 0], ['5-0', 0], ['5-1', 1], ['5-2', 2], ['4-1', 1]]);
});

test('positions are ordered by their numbers', () => {
  expect(['10-0', '9-10', '9-2'].sort(compare)).toEqual(['9-2', '9-10', '10-0']);
});
