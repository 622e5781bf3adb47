import { expect, test } from 'vitest';
import { diff, mostChanges, withoutTimes, withTimesOf } from './diff';
import { parse, write } from './json';

test('members that differ are named by their pointers, and digits count', () => {
  expect(diff(parse('{"a":1,"b":[1,2],"c/d":0.1,"e":{"f":1}}'), parse('{"a":1,"b":[1,3,4],"c/d":0.10,"g":{"h":2}}')).changes).toEqual([
    { pointer: '/b/1', change: 'changed', before: '2', after: '3' },
    { pointer: '/b/2', change: 'added', after: '4' },
    { pointer: '/c~1d', change: 'changed', before: '0.1', after: '0.10' },
    { pointer: '/g', change: 'added', after: '{"h":2}' },
    { pointer: '/e', change: 'removed', before: '{"f":1}' },
  ]);
  expect(diff(undefined, parse('3')).changes).toEqual([{ pointer: '', change: 'added', after: '3' }]);
  expect(diff(parse('{"__proto__":1}'), parse('{"__proto__":2}')).changes[0]?.pointer).toBe('/__proto__');
});

test('lists and texts are cut', () => {
  const many = diff([], Array.from({ length: 300 }, (_, i) => i));
  expect([many.changes.length, many.more]).toEqual([mostChanges, 100]);
  expect(diff(null, 'x'.repeat(2000)).changes[0]?.after).toHaveLength(512);
});

test('the times of the engine are no changes', () => {
  const a = parse('{"n":1,"created_at":1,"updated_at":2}');
  const b = parse('{"n":1,"created_at":1,"updated_at":3}');
  expect(diff(withoutTimes(a), withoutTimes(b)).changes).toEqual([]);
  expect(write(withTimesOf(a, b))).toBe('{"n":1,"created_at":1,"updated_at":3}');
});
