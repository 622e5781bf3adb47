import { describe, expect, it } from 'vitest';
import { example } from './example';
import { parse, type JsonObject } from './json';

const spec = (events: string, more = '') => parse(`{"agent_types":["user"],"aggregate_types":{"counter":{"events":${events}}}${more}}`) as JsonObject;

describe('example', () => {
  it('has what a schema requires', () => {
    const e = example(spec('{"was_raised":{"schema":{"type":"object","properties":{"by":{"type":"integer","minimum":3},"why":{"type":"string"}},"required":["by"]}}}'));
    expect(e).toMatchObject({ type: 'counter', event: 'was_raised', actor: { type: 'user', id: 'global' }, data: { by: 3 } });
  });
  it('prefers an event that begins an aggregate', () => {
    expect(example(spec('{"was_closed":{"creates":false,"schema":{}},"was_opened":{"schema":{}}}'))?.event).toBe('was_opened');
  });
  it('looks into shared definitions, and leaves out what it cannot make', () => {
    const events = '{"was_coded":{"schema":{"type":"object","properties":{"x":{"type":"string","pattern":"^[QX]{40}$"}},"required":["x"]}},"was_paid":{"schema":{"type":"object","properties":{"m":{"$ref":"#/$defs/money"}},"required":["m"]}}}';
    expect(example(spec(events, ',"$defs":{"money":{"type":"string","enum":["EUR"]}}'))).toMatchObject({ event: 'was_paid', data: { m: 'EUR' } });
  });
  it('knows none where no event can be made', () => {
    expect(example(spec('{}'))).toBeNull();
  });
});
