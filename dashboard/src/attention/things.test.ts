import { expect, test } from 'vitest';
import { parse } from '../data/json';
import { facts, pageOf, steps, within } from './things';

const all = () => true;
const names = (kind: string, actions: string[], has = all) => steps({ kind, actions }, 'x', has).map((s) => `${s.method} ${s.path}`);

test('steps are those that the server names, and that the role may take', () => {
  expect(names('scheduled', ['retry', 'delete', 'open'])).toEqual(['POST scheduled/x/retry', 'DELETE scheduled/x']);
  expect(names('saga', ['retry', 'open'])).toEqual(['POST sagas/x/retry']);
  expect(names('spec', ['delete', 'open'])).toEqual(['DELETE spec/prepared']);
  expect(names('backup', ['delete', 'open'])).toEqual(['DELETE backups/x']);
  expect(names('erasure', ['execute', 'open'])).toEqual(['POST tombstones/x/execute']);
  expect(names('erasure', ['execute'], ((r: string) => r !== 'erase') as never)).toEqual([]);
  expect(names('scheduled', ['retry', 'delete'], (() => false) as never)).toEqual([]);
  expect(names('projection', ['retry', 'delete', 'open'])).toEqual([]);
});

test('what has a page leads there', () => {
  expect(pageOf('implication', 'order:a/b')).toBe('aggregates/order/a%2Fb');
  expect(pageOf('spec', 'abc')).toBe('spec');
  expect(pageOf('saga', 'sag_1')).toBe('');
});

test('a thing within an answer', () => {
  expect(within(parse('{"ok":true,"scheduled":[{"scheduled_id":"a"},{"scheduled_id":"b","n":1}]}'), 'b')).toEqual(parse('{"scheduled_id":"b","n":1}'));
  expect(within(parse('{"ok":true,"listeners":[]}'), 'b')).toBeNull();
  expect(within(parse('{"ok":true,"delivery":{"id":"x"}}'), 'x')).toEqual(parse('{"id":"x"}'));
});

test('what is said first', () => {
  const f = facts(parse('{"status":"failed","attempts":3,"error":{"message":"too late"},"trigger":{"key":"cart:1","event_type":"went","stream_id":"1-0"}}'));
  expect(f.map((x) => [x.name, x.text, x.page])).toEqual([
    ['Status', 'failed', undefined], ['Why', 'too late', undefined], ['Tries', '3', undefined], ['Caused by', 'cart/1', 'aggregates/cart/1'], ['Event', 'went 1-0', 'events/1-0'],
  ]);
});
