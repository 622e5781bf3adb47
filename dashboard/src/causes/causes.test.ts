import { expect, test } from 'vitest';
import type { Trace, TraceNode } from '../api/types';
import { layout, since } from './layout';
import { why } from './why';

const n = (id: string, at_ms: number, key: string, kind: TraceNode['kind'] = 'event'): TraceNode => ({ id, kind, at: new Date(at_ms).toISOString(), at_ms, key, type: `t${id}` });

const trace: Trace = {
  nodes: [n('3', 90_000, 'note:a'), n('1', 1000, 'cart:a'), n('2', 1000, 'note:a'), { ...n('s', 1011, ''), kind: 'saga', key: 'saga:s' } as TraceNode, n('4', 95_000, 'cart:a')],
  edges: [
    { from: '1', to: '2', how: 'implied' },
    { from: '1', to: 's', how: 'triggered' },
    { from: 's', to: '3', how: 'emitted' },
    { from: '3', to: 's', how: 'answered' },
    { from: 's', to: '4', how: 'compensated' },
  ],
  truncated: false,
};

test('lanes come in the order of their first events, and idle time is folded', () => {
  const l = layout(trace, true);
  expect(l.lanes.map((x) => x.title)).toEqual(['cart', 'note', 'saga ts']);
  expect(l.nodes.map((x) => x.node.id)).toEqual(['1', '2', 's', '3', '4']);
  expect(l.folds.length).toBeGreaterThan(0);
  expect(layout(trace, false).width).toBeGreaterThan(l.width);
  const of = (id: string) => l.nodes.find((x) => x.node.id === id);
  expect(of('2')?.shape).toBe('ring');
  expect(of('s')?.shape).toBe('bar');
  expect((of('s')?.x ?? 0) + (of('s')?.width ?? 0)).toBeGreaterThan(of('4')?.x ?? Infinity);
});

test('a circle of sagas ends', () => {
  const list = why(trace, '3');
  expect(list.map((r) => [r.node.id, r.place])).toEqual([['1', 'cause'], ['s', 'cause'], ['3', 'self'], ['4', 'consequence']]);
  expect(list[2]?.how).toBe('emitted by saga ts');
  expect(why(trace, 'none')).toEqual([]);
  expect(layout({ nodes: [], edges: [{ from: 'a', to: 'b', how: 'x' }], truncated: false }, true).edges).toEqual([]);
});

test('what a saga did before it was answered does not follow from the answer', () => {
  const saga: Trace = {
    nodes: [
      n('1-0', 1, 'cart:a'), { ...n('s', 1, ''), kind: 'saga' } as TraceNode, n('2-0', 2, 'stock:a'), n('5-0', 5, 'bank:a'), n('5-1', 5, 'bank:a'),
      { ...n('r', 5, ''), kind: 'refusal' } as TraceNode, n('6-0', 6, 'stock:a'),
    ],
    edges: [
      { from: '1-0', to: 's', how: 'triggered' }, { from: 's', to: '2-0', how: 'emitted' }, { from: '5-0', to: '5-1', how: 'implied' },
      { from: '5-1', to: 's', how: 'answered' }, { from: 's', to: 'r', how: 'refused' }, { from: 's', to: '6-0', how: 'compensated' },
    ],
    truncated: false,
  };
  const of = (id: string) => why(saga, id).map((r) => `${r.place} ${r.node.id}`);
  expect(of('5-0')).toEqual(['self 5-0', 'consequence s', 'consequence 5-1', 'consequence r', 'consequence 6-0']);
  expect(of('5-1')).toEqual(['cause 5-0', 'self 5-1', 'consequence s', 'consequence r', 'consequence 6-0']);
  expect(of('2-0')).toEqual(['cause 1-0', 'cause s', 'self 2-0']);
  expect(of('6-0')).toEqual(['cause 1-0', 'cause s', 'cause 5-0', 'cause 5-1', 'self 6-0']);
});

test('500 nodes are laid out within 50 ms', () => {
  const nodes = Array.from({ length: 500 }, (_, i) => n(String(i), i * 10, `x:${i % 60}`));
  const edges = nodes.slice(1).map((x, i) => ({ from: String(i), to: x.id, how: 'implied' }));
  const t = performance.now();
  const l = layout({ nodes, edges, truncated: true }, true);
  expect(l.nodes).toHaveLength(500);
  expect(performance.now() - t).toBeLessThan(50);
});

test('times since the first event', () => {
  expect([0, 337, 4200, 180_000, 7_200_000].map(since)).toEqual(['0 ms', '337 ms', '4.2 s', '3 min', '2 h']);
});
