import { describe, expect, it } from 'vitest';
import { parse, type Json } from '../data/json';
import { explain, kindOf, proposals, stateMembers } from './language';
import { placeAt, wordAt } from './places';
import orders from '../../../examples/orders/spec.json?raw';
import checkout from '../../../examples/checkout/spec.json?raw';
import taskboard from '../../../examples/taskboard/spec.json?raw';

const spec = `{
  "agent_types": ["user"],
  "$defs": {"line": {"type": "object", "properties": {"sku": {"type": "string"}}}},
  "aggregate_types": {
    "account": {"events": {
      "had_deposit": {
        "schema": {"type": "object", "properties": {"amount": {"type": "number"}, "line": {"$ref": "#/$defs/line"}}, "required": ["amount"]},
        "handler": [{"increment": {"target": "balance", "by": "$.data.amount"}}, {"set": {"target": "owner.name", "value": "x"}}],
        "reads": {"desk": {"aggregate_type": "desk", "id": "global"}},
        "requires": [{"that": {"equals": ["$.reads.desk.open", true]}, "message": "Closed."}],
        "implications": [{"emit": {"aggregate_type": "desk", "id": "$.key", "event_type": "was_opened", "data": {}}}]
      }
    }},
    "desk": {"events": {"was_opened": {"schema": {}, "handler": {"set": {"target": "open", "value": true}}}}}
  }
}`;

/** What is proposed where ^ stands after some text has been replaced. */
function at(from: string, to: string, of = spec): string[] {
  const text = of.replace(from, to);
  expect(text).not.toBe(of);
  const offset = text.indexOf('^');
  const typed = text.replace('^', '');
  return proposals(typed, offset, placeAt(typed, offset), parse(of)).map((p) => p.label);
}

describe('proposals', () => {
  it('are the keys of the place', () => {
    expect(at('"agent_types": ["user"],', '^')).toEqual(expect.arrayContaining(['agent_types', 'projections', 'modules']));
    expect(at('"reads":', '^"reads":')).toEqual(expect.arrayContaining(['creates', 'tags', 'unique']));
    expect(at('"reads":', '^"reads":')).not.toContain('handler'); // which is there
  });
  it('are operations, and what they take', () => {
    expect(at('{"increment"', '{^}, {"increment"')).toEqual(expect.arrayContaining(['set', 'if', 'let', 'increment_at']));
    expect(at('{"set": {"target": "owner.name", "value": "x"}}]', '{"^],')).toEqual(expect.arrayContaining(['set', 'increment_at']));
    expect(at('{"target": "balance", ', '{^')).toEqual(['target', 'value']);
    expect(at('{"increment"', '{"if": {}, ^}, {"increment"')).toEqual(['else', 'then']);
  });
  it('are predicates and operators', () => {
    expect(at('{"equals": ["$.reads.desk.open", true]}', '{^}')).toEqual(expect.arrayContaining(['equals', 'exists', 'every']));
    expect(at('"value": "x"', '"value": {^}')).toEqual(expect.arrayContaining(['$add', '$if', '$concat']));
    expect(at('"value": "x"', '"value": {"$round": 1, ^}')).toEqual(['rounding', 'scale']);
    expect(at('"value": "x"', '"value": {"$round": 1, "rounding": ^}')).toContain('half_up');
  });
  it('are paths', () => {
    const handler = at('"$.data.amount"', '"$.^"');
    expect(handler).toEqual(expect.arrayContaining(['$.data.amount', '$.data.line.sku', '$.metadata.actor.id', '@.balance', '$.state.owner.name']));
    expect(handler).not.toContain('$.reads.desk.open');
    expect(at('"$.reads.desk.open"', '"^"')).toContain('$.reads.desk.open');
    expect(at('"target": "balance"', '"target": "^"')).toEqual(expect.arrayContaining(['balance', 'owner.name']));
  });
  it('are the types and the events of the spec', () => {
    expect(at('"emit": {"aggregate_type": "desk"', '"emit": {"aggregate_type": "^"')).toEqual(['account', 'desk']);
    expect(at('"event_type": "was_opened"', '"event_type": "^"')).toEqual(['was_opened']);
    expect(at('"required": ["amount"]', '"required": ["^"]')).toEqual(['amount', 'line']);
    expect(at('"#/$defs/line"', '"^"')).toEqual(['#/$defs/line']);
    expect(at('"type": "number"', '"type": "^"')).toContain('integer');
  });
  it('name what elements are bound to', () => {
    expect(at('{"increment"', '{"filter": {"target": "x", "as": "$row", "keep": {"equals": ["^"]}}}, {"increment"')).toEqual(expect.arrayContaining(['$row']));
  });
  it('are none where names are chosen', () => {
    expect(at('"aggregate_types": {\n', '"aggregate_types": {^\n')).toEqual([]);
    expect(at('"agent_types": ["user"],', '"agent_types": ["user"]^,')).toEqual([]);
  });
});

describe('explain', () => {
  const say = (of: string, within = spec) => {
    const offset = within.indexOf(of) + 2;
    const w = wordAt(within, offset);
    return w ? explain(w, within, offset, parse(within)) : null;
  };
  it('keys', () => expect(say('"implications"')?.about).toMatch(/happens because of the event/));
  it('operations', () => expect(say('"increment"')?.about).toMatch(/Adds to the number/));
  it('members of operations', () => expect(say('"by"')?.about).toMatch(/amount/));
  it('paths', () => expect(say('"$.data.amount"')).toEqual({ name: '$.data.amount', is: 'path', about: 'number' }));
  it('types', () => expect(say('"desk", "id": "global"')?.about).toBe('Its events are was_opened.'));
  it('event types', () => expect(say('"had_deposit"')?.about).toBe('Its data: amount (number), line.'));
});

describe('the table', () => {
  it.each([['orders', orders], ['checkout', checkout], ['taskboard', taskboard]])('knows every key of %s', (_, text) => {
    const unknown: string[] = [];
    let seen = 0;
    const walk = (v: Json, path: (string | number)[], around: { from: number; keys: string[] }[]) => {
      if (Array.isArray(v)) return v.forEach((e, i) => walk(e, [...path, i], [...around, { from: 0, keys: [] }]));
      if (v === null || typeof v !== 'object') return;
      const keys = Object.keys(v);
      const here = [...around, { from: 0, keys }];
      for (const k of keys) {
        seen++;
        if (kindOf([...path, k], here) === 'anything' && !path.includes('schema') && !path.includes('$defs')) unknown.push([...path, k].join('/'));
        walk((v as Record<string, Json>)[k] as Json, [...path, k], here);
      }
    };
    walk(JSON.parse(text) as Json, [], []);
    expect(seen).toBeGreaterThan(20);
    expect(unknown).toEqual([]);
  });
  it('knows what handlers write', () => expect(Object.keys(stateMembers(parse(orders), 'order'))).toEqual(expect.arrayContaining(['paid', 'status', 'customer_id', 'payments'])));
});
