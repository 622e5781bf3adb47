import { expect, test } from 'vitest';
import { follow } from './values';

const set = (pointer: string, after?: string) => ({ pointer, change: after === undefined ? ('removed' as const) : ('changed' as const), ...(after === undefined ? {} : { after }) });

test('a number is followed from version to version', () => {
  expect(follow(1, '/a/b', { changes: [set('/a/b', '2.50')] })).toBe(2.5);
  expect(follow(1, '/a/b', { changes: [set('/a/bc', '2')] })).toBe(1);
  expect(follow(null, '/a/b', { changes: [set('/a', '{"b":7}')] })).toBe(7);
  expect(follow(1, '/a/b', { changes: [set('/a', '{"c":7}')] })).toBeNull();
  expect(follow(1, '/a/b', { changes: [set('/a')] })).toBeNull();
  expect(follow(1, '/a/b', { changes: [set('/a/b', '"x"')] })).toBeNull();
});

test('where changes do not tell, somebody has to look', () => {
  expect(follow(1, '/a/b', { changes: [set('/a', '{"b":7,"c":"xxx')] })).toBeUndefined();
  expect(follow(1, '/a/b', { changes: [set('/z', '1')], more: 3 })).toBeUndefined();
  expect(follow(1, '/a/b', { changes: [set('/a/b', '4')], more: 3 })).toBe(4);
  expect(follow(1, '/a/b', { changes: [], more: -1 })).toBeUndefined();
});
