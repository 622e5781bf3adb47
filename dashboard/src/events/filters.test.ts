import { expect, test } from 'vitest';
import { curl, curlOf, filtersOf, parameters, placeOf, shellWord, tailOf, timeOf } from './filters';

test('the address is the filters, and the filters are the parameters', () => {
  const f = filtersOf(new URLSearchParams('type=counter&actor=user:1&x=y'));
  expect(parameters(f)).toBe('type=counter&actor=user:1');
  expect(curlOf('http://app.localhost', f)).toBe(`curl 'http://app.localhost/_events?before=now&count=100&type=counter&actor=user:1' -H "Authorization: Bearer $J17_KEY"`);
  expect(tailOf('http://app.localhost', f)).toBe('J17_URL=http://app.localhost j17 events tail --type counter --actor user:1');
});

test('what is hostile in a filter stays within its word', () => {
  const f = filtersOf(new URLSearchParams({ type: `a' ; rm -rf ~`, actor: '$(x)' }));
  expect(curlOf('http://h', f)).toBe(`curl 'http://h/_events?before=now&count=100&type=a%27%20%3B%20rm%20-rf%20~&actor=%24(x)' -H "Authorization: Bearer $J17_KEY"`);
  expect(shellWord(`a'b`)).toBe(`'a'\\''b'`);
  expect(curl('$J17_URL/x')).toContain('"$J17_URL/x"');
});

test('positions and times are told apart', () => {
  const now = new Date('2026-11-28T16:24:07Z');
  expect(placeOf(' 1795882010941-0 ', true, now)).toEqual({ event: '1795882010941-0' });
  expect(placeOf('2026-11-24T09:41:00Z', true, now)).toEqual({ before: `${Date.UTC(2026, 10, 24, 9, 41)}-0` });
  expect(timeOf('09:41', true, now)).toBe(Date.UTC(2026, 10, 28, 9, 41));
  expect(timeOf('2026-11-24 09:41:00+02:00', true, now)).toBe(Date.UTC(2026, 10, 24, 7, 41));
  for (const none of ['', 'soon', '25:00', '2026-13-01', '123']) expect(placeOf(none, true, now)).toBeNull();
});
