import { expect, test, vi } from 'vitest';

vi.stubGlobal('document', { documentElement: { dataset: {} }, querySelector: () => null, addEventListener: () => {} });
const { estimate, unseen } = await import('./tail');
const e = (id: string) => ({ stream_id: id });

test('what is new is what has a greater position', () => {
  const page = [e('10-0'), e('9-10'), e('9-2'), e('8-0')];
  expect(unseen(page, '9-2').map((x) => x.stream_id)).toEqual(['10-0', '9-10']);
  expect(unseen(page, '10-0')).toEqual([]);
  expect(unseen(page, '0')).toEqual(page);
});

test('a page of the newest tells how many there were', () => {
  expect(estimate([e('1100-0'), e('1050-0'), e('1000-0')], 1000)).toBe(30);
  expect(estimate([e('1100-1'), e('1100-0')], 1000)).toBe(2000);
  expect(estimate([e('9000-0'), e('1000-0')], 1000)).toBe(2);
  expect(estimate([e('1-0')], 0)).toBe(1);
});
