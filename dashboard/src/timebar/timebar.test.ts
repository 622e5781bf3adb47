import { expect, test } from 'vitest';
import { columns, heightOf, mostStops, named, stops, versionAt, versionOf } from './timebar';

test('stops go from end to end', () => {
  expect(stops(3).map((s) => s.at)).toEqual([0, 50, 100]);
  expect(stops(1).map((s) => s.at)).toEqual([0]);
  expect(stops(mostStops + 1)).toEqual([]);
});

test('columns stand for all versions, each once', () => {
  expect(columns(3, 1000)).toEqual([[1, 1], [2, 2], [3, 3]]);
  const of = columns(10_000, 1000);
  expect(of.length).toBe(250);
  expect(of[0]).toEqual([1, 40]);
  expect(of.at(-1)).toEqual([9961, 10_000]);
  expect(of.every(([a], i) => i === 0 || a === (of[i - 1]?.[1] ?? 0) + 1)).toBe(true);
  expect(columns(61, 0)).toEqual([[1, 61]]);
});

test('what changed more is higher', () => {
  expect([-1, 0, 1, 3, 1000].map(heightOf)).toEqual([6, 6, 9, 12, 20]);
});

test('first, current, next and last are named where they have room', () => {
  expect(named(3, 7).map((n) => n.length)).toEqual([1, 3, 4, 7]);
  expect(named(7, 7).map((n) => n.length)).toEqual([1, 7]);
  expect(named(1, 1)).toEqual([{ length: 1, where: 'first' }]);
  expect(named(2, 40).map((n) => n.length)).toEqual([2, 40]);
});

test('versions of times and addresses', () => {
  expect([5, 10, 15, 25, 99].map((t) => versionAt([10, 20, 20, 30], t))).toEqual([null, 1, 1, 3, 4]);
  expect(['3', null, '0', '99', 'x', '-1', '1e3'].map((t) => versionOf(t, 7))).toEqual([3, 7, 1, 7, 7, 7, 7]);
});
