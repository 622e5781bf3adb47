import { expect, test } from 'vitest';
import { parse } from './json';
import { lines, preview, shown } from './tree';

const none = new Map<string, boolean>();
const brief = (v: string, before?: string) =>
  lines(parse(v), before === undefined ? undefined : parse(before), none).map((l) => `${' '.repeat(l.depth)}${l.change[0] ?? '='} ${l.key ?? ''}${l.mark}${l.folded ?? ''}`);

test('a value without another one', () => {
  expect(brief('{"a":1,"b":[2,{}]}')).toEqual(['= {', ' = a', ' = b[', '  = 0', '  = 1{0', ' = ]', '= }']);
});

test('what differs', () => {
  expect(brief('{"a":2,"b":[1,2],"same":{"x":1},"new":{"y":1}}', '{"a":1,"b":[1],"same":{"x":1},"gone":3}')).toEqual([
    '= {', ' c a', ' = b[', '  = 0', '  a 1', ' = ]', ' = same{1', ' a new{', '  a y', ' a }', ' r gone', '= }',
  ]);
});

test('a list that was an object is changed as a whole', () => {
  expect(brief('{"a":[1]}', '{"a":{"0":1}}')[1]).toBe(' c a[');
});

test('a state that did not change stays folded but at the top', () => {
  expect(brief('{"a":{"b":1}}', '{"a":{"b":1}}')).toEqual(['= {', ' = a{1', '= }']);
});

test('texts are cut and made visible', () => {
  expect(shown('x'.repeat(300)).length).toBe(203);
  expect(shown('a\u202e"')).toBe('"a⟨U+202E⟩\\""');
  expect(preview(parse('{"a":"x","n":0.10,"l":[1,2]}'))).toEqual([['a', 'x', 'text'], ['n', '0.10', 'number'], ['l', '[2]', 'none']]);
});
