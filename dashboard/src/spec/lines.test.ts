import { describe, expect, it } from 'vitest';
import { compared, hunks, marks, merged } from './lines';

const lines = (s: string) => s.split('');

/** The text that hunks make of a base. */
function applied(base: string[], text: string[]): string[] {
  const out: string[] = [];
  let at = 0;
  for (const h of hunks(base, text)) {
    out.push(...base.slice(at, h.a), ...text.slice(h.c, h.d));
    at = h.b;
  }
  return [...out, ...base.slice(at)];
}

describe('hunks', () => {
  it.each([
    ['', ''], ['abc', 'abc'], ['abc', 'axc'], ['abc', 'ac'], ['ac', 'abc'], ['abcabba', 'cbabac'], ['aaaa', 'aa'], ['', 'abc'], ['abc', ''],
    ['abcdefgh', 'xbcdyfgz'], ['abcde', 'edcba'],
  ])('lead from %j to %j', (a, b) => {
    expect(applied(lines(a), lines(b)).join('')).toBe(b);
  });

  it('are few', () => {
    expect(hunks(lines('abcdef'), lines('abXdef'))).toEqual([{ a: 2, b: 3, c: 2, d: 3 }]);
    expect(hunks(lines('abcabba'), lines('cbabac')).reduce((n, h) => n + h.b - h.a + h.d - h.c, 0)).toBe(5);
  });

  it('lead from any text to any other', () => {
    let seed = 7;
    const next = (n: number) => (seed = (seed * 48271) % 2147483647) % n;
    for (let i = 0; i < 500; i++) {
      const a = Array.from({ length: next(30) }, () => String(next(5)));
      const b = Array.from({ length: next(30) }, () => String(next(5)));
      expect(applied(a, b)).toEqual(b);
    }
  });

  it('of texts without anything in common are one, and take no long time', () => {
    const a = Array.from({ length: 20_000 }, (_, i) => `a${i}`);
    const b = Array.from({ length: 20_000 }, (_, i) => `b${i}`);
    expect(hunks(a, b)).toEqual([{ a: 0, b: 20_000, c: 0, d: 20_000 }]);
  });
});

describe('marks', () => {
  it('name what is new, and where something is gone', () => {
    expect(marks(lines('abcdef'), lines('abXdf'))).toEqual({ added: [2], gone: [4], count: 2 });
    expect(marks(lines('abc'), lines('ab'))).toEqual({ added: [], gone: [1], count: 1 });
  });
  it('tell a line that has moved', () => {
    expect(marks(lines('abcd'), lines('bcda')).count).toBe(2);
  });
});

describe('compared', () => {
  it('has lines around each change', () => {
    const rows = compared('a\nb\nc\nd\ne\nf\ng\nh', 'a\nb\nc\nd\nE\nf\ng\nh', 1);
    expect(rows.map((r) => `${r.sign}${r.text}`)).toEqual(['…', 'd', '−e', '+E', 'f', '…']);
    expect(rows[3]?.line).toBe(5);
  });
  it('has each line once', () => {
    const rows = compared('a\nb\nc', 'X\nb\nZ', 3);
    expect(rows.map((r) => `${r.sign}${r.text}`)).toEqual(['−a', '+X', 'b', '−c', '+Z']);
  });
  it('is empty where nothing differs', () => expect(compared('a\nb', 'a\nb')).toEqual([]));
});

describe('merged', () => {
  it('has the changes of both', () => expect(merged('a\nb\nc\nd\ne', 'a\nB\nc\nd\ne', 'a\nb\nc\nd\nE\nf')).toBe('a\nB\nc\nd\nE\nf'));
  it('has once what both did', () => expect(merged('a\nb\nc', 'a\nX\nc', 'a\nX\nc')).toBe('a\nX\nc'));
  it('is none where both changed one line', () => expect(merged('a\nb\nc', 'a\nX\nc', 'a\nY\nc')).toBeNull());
  it('is none where both put something in at one place', () => expect(merged('a\nb', 'a\nx\nb', 'a\ny\nb')).toBeNull());
  it('is theirs where nothing of mine differs', () => expect(merged('a', 'a', 'b')).toBe('b'));
});
