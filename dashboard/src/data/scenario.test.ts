import { expect, test } from 'vitest';
import type { StoredEvent } from '../api/types';
import { parse } from './json';
import { scenario } from './scenario';

const event = (n: number) => parse(`{"stream_id":"1-${n}","key":"counter:a","type":"was_raised","data":{"by":0.${n}0},"metadata":{"actor":{"type":"user","id":"u"}}}`) as StoredEvent;

test('a version as a scenario', () => {
  const text = scenario([event(1)], event(2), parse('{"total":0.30,"created_at":1,"updated_at":2}'));
  expect(text.replace(/\s+/g, '')).toBe(
    '[{"name":"counter.was_raised,version2","given":[{"key":"counter:a","type":"was_raised","data":{"by":0.10},"actor":"user:u"}],"when":{"key":"counter:a","type":"was_raised","data":{"by":0.20},"actor":"user:u"},"then":{"state":{"counter:a":{"total":0.30}}}}]',
  );
});

test('the first version has nothing given', () => expect(scenario([], event(1), parse('{}'))).not.toContain('given'));
