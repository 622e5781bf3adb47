import { describe, expect, it } from 'vitest';
import { locate, nearest, placeAt, wordAt } from './places';

/** What is around the first | of a text. */
const at = (text: string) => placeAt(text.replace('|', ''), text.indexOf('|'));

describe('placeAt', () => {
  it.each([
    ['{|}', [], 'key', null],
    ['{"a|"}', [], 'key', 'a'],
    ['{"a|', [], 'key', 'a'],
    ['{"a":|}', ['a'], 'value', null],
    ['{"a":"x|y"}', ['a'], 'value', 'xy'],
    ['{"a":{"b":[1,|]}}', ['a', 'b', 1], 'value', null],
    ['{"a":{"b":[1,{|]}}', ['a', 'b', 1], 'key', null],
    ['{"a":[{"x":1},{"y":"$.|"}]}', ['a', 1, 'y'], 'value', '$.'],
    ['{"a":1,|}', [], 'key', null],
    ['{"a":1 |}', ['a'], 'between', null],
    ['{"a":{}|}', ['a'], 'between', null],
    ['{"a":"say \\"|hi\\""}', ['a'], 'value', 'say "hi"'],
    ['{"a":"x"|}', ['a'], 'between', null],
    ['[|]', [0], 'value', null],
    ['{"a": [{"b": "|\n}]}', ['a', 0, 'b'], 'value', ''],
  ] as const)('%s', (text, path, what, string) => {
    const p = at(text);
    expect([p.path, p.at, p.string?.text ?? null]).toEqual([path, what, string]);
  });
  it('knows the other keys', () => {
    expect(at('{"a":1,"b|":2,"c":{"d":3},"e":4}').keys).toEqual(['a', 'c', 'e']);
    expect(at('{"a":{"x":1},|"c":3}').keys).toEqual(['a', 'c']);
  });
  it('knows whether a key has its colon', () => {
    expect(at('{"a|":1}').named).toBe(true);
    expect(at('{"a|"}').named).toBe(false);
  });
});

describe('wordAt', () => {
  it('is a key with what leads to it', () => expect(wordAt('{"a":{"bc":1}}', 7)).toEqual({ path: ['a', 'bc'], at: 'key', from: 6, to: 10, text: 'bc', around: [{ from: 0, keys: ['a'] }, { from: 5, keys: ['bc'] }] }));
  it('is a text', () => expect(wordAt('{"a":["x","yz"]}', 12)).toMatchObject({ path: ['a', 1], at: 'value', text: 'yz' }));
  it('is none elsewhere', () => expect(wordAt('{"a": 17}', 7)).toBeNull());
});

describe('locate', () => {
  const text = '{"a":{"b":[1,{"c/d":2}],"b2":0},"e":{"b":[5,6]},"":{"~":7}}';
  it.each([
    ['/a', '"a"'], ['/a/b', '"b":[1'], ['/a/b/0', '1,{'], ['/a/b/1/c~1d', '"c/d"'], ['/e/b/1', '6]'], ['//~0', '"~"'], ['', '{"a"'], ['/e', '"e"'],
  ])('%s', (pointer, there) => expect(text.slice(locate(text, pointer) ?? -1).startsWith(there)).toBe(true));
  it.each(['/x', '/a/b/7', '/a/b/1/c', '/a/b2/0'])('%s leads nowhere', (pointer) => expect(locate(text, pointer)).toBeNull());
  it('falls back to what is around', () => expect(nearest(text, '/a/b/7/x')).toBe(locate(text, '/a/b')));
  it('does not mind a text that is no JSON yet', () => expect(locate('{"a":{"b":}, "c": 1', '/c')).toBe(13));
});
