import { describe, expect, test } from 'vitest';
import { at, Digits, equal, keys, members, parse, visible, write, type JsonObject } from './json';

describe('digits', () => {
  for (const text of ['0.10', '1234567890123456789012345678901234567890.1234567890', '1e400', '-0', '1E5', '9007199254740993', '7', '4.3', '0.1', '-1.5e-7']) {
    test(text, () => expect(write(parse(`{"a":[${text}]}`))).toBe(`{"a":[${text}]}`));
  }
  test('a number that JavaScript writes alike is one', () => expect(parse('4.3')).toBe(4.3));
  test('another one is not', () => expect(parse('0.10')).toBeInstanceOf(Digits));
});

test('a key like a property of objects is one like any other', () => {
  const v = parse('{"__proto__":{"x":1},"constructor":2}') as JsonObject;
  expect(keys(v)).toEqual(['__proto__', 'constructor']);
  expect(({} as Record<string, unknown>).x).toBeUndefined();
  expect(write(v)).toBe('{"__proto__":{"x":1},"constructor":2}');
});

test('keys keep their order', () => {
  const text = '{"b":1,"10":2,"2":3,"a":4}';
  expect(write(parse(text))).toBe(text);
  expect(members(parse(text)).map(([k]) => k)).toEqual(['b', '10', '2', 'a']);
});

test('texts', () => {
  expect(parse('"a\\u202eb\\n\\"\\\\ü"')).toBe('a\u202eb\n"\\ü');
  expect(visible('a\u202eb\u0000')).toBe('a⟨U+202E⟩b⟨U+0000⟩');
  expect(visible('a\tb\nc')).toBe('a\tb\nc');
});

test('what is no JSON is told', () => {
  for (const bad of ['', '{', '[1,]', '{"a"}', 'tru', '1 2', '"a', '{"a":1,}', '\u00a0 1', '[' .repeat(2000)]) expect(() => parse(bad)).toThrow(SyntaxError);
});

test('128 levels', () => {
  const text = '{"a":'.repeat(128) + '1' + '}'.repeat(128);
  expect(write(parse(text))).toBe(text);
});

test('pointers', () => {
  const v = parse('{"a/b":[{"~":1}]}');
  expect(at(v, '/a~1b/0/~0')).toBe(1);
  expect(at(v, '/none/x')).toBeUndefined();
});

test('equal', () => {
  expect(equal(parse('{"a":[1,0.10]}'), parse('{"a":[1,0.10]}'))).toBe(true);
  expect(equal(parse('{"a":0.10}'), parse('{"a":0.1}'))).toBe(false);
  expect(equal(parse('[1]'), parse('{"0":1}'))).toBe(false);
});
