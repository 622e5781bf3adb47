import { expect, test } from 'vitest';
import { bytes, clockTime, duration, fullTime, plural, shortTime, timeOf } from './format';

const t = new Date('2026-11-24T09:41:00.120Z');

test('times', () => {
  expect(clockTime(t, 'utc', true)).toBe('09:41:00.120');
  expect(fullTime(t, 'utc')).toBe('Tue 24 Nov 2026 09:41:00');
  expect(shortTime(t, 'utc', new Date('2026-11-24T16:00:00Z'))).toBe('09:41:00');
  expect(shortTime(t, 'utc', new Date('2026-11-26T16:00:00Z'))).toBe('Tue 09:41');
  expect(shortTime(t, 'utc', new Date('2026-12-26T16:00:00Z'))).toBe('24 Nov 09:41');
  expect(shortTime(t, 'utc', new Date('2027-12-26T16:00:00Z'))).toBe('24 Nov 2026');
  expect(timeOf('1795882010941-3').toISOString()).toBe('2026-11-28T16:06:50.941Z');
});

test('amounts', () => {
  expect([duration(4000), duration(240_000), duration(7_200_000), duration(260_000_000)]).toEqual(['4 s', '4 min', '2 h', '3 days']);
  expect([bytes(12), bytes(1900), bytes(9_800_000_000)]).toEqual(['12 B', '1.9 KB', '9.8 GB']);
  expect([plural(1, 'saga'), plural(2, 'saga'), plural(2000, 'delivery')]).toEqual(['1 saga', '2 sagas', '2,000 deliveries']);
});
