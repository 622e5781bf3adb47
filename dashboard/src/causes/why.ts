// Why an event happened, as a list: what led to it, from the first cause on, itself, and what followed from it.

import type { Trace, TraceNode } from '../api/types';

export interface Reason {
  node: TraceNode;
  /** How it is joined to the one it came from: "implied by had_order_placed". */
  how: string;
  place: 'cause' | 'self' | 'consequence';
  /** Milliseconds since the first of the list. */
  after: number;
}

const words: Record<string, string> = {
  implied: 'implied by',
  scheduled: 'scheduled by',
  cancelled: 'cancelled by',
  triggered: 'begun by',
  emitted: 'emitted by',
  answered: 'answered',
  compensated: 'undone by',
  refused: 'refused, asked for by',
  delivered: 'delivery of',
};

/** The causes, the event itself, and its consequences, each once, whatever circles the graph has. */
export function why(trace: Trace, self: string): Reason[] {
  const by = new Map(trace.nodes.map((n) => [n.id, n]));
  const me = by.get(self);
  if (!me) return [];
  const causes = reach(trace, self, 'from');
  const consequences = reach(trace, self, 'to');
  for (const id of causes.keys()) consequences.delete(id);
  causes.delete(self);
  consequences.delete(self);

  const start = trace.nodes.reduce((m, n) => (causes.has(n.id) ? Math.min(m, n.at_ms) : m), me.at_ms);
  const list: Reason[] = [];
  const add = (ids: Iterable<string>, place: Reason['place']) => {
    const nodes = [...ids].map((id) => by.get(id)).filter((n) => n !== undefined);
    nodes.sort((a, b) => a.at_ms - b.at_ms);
    for (const node of nodes) list.push({ node, how: howOf(trace, by, node), place, after: Math.max(0, node.at_ms - start) });
  };
  add(causes.keys(), 'cause');
  add([self], 'self');
  add(consequences.keys(), 'consequence');
  return list;
}

function reach(trace: Trace, self: string, way: 'from' | 'to'): Map<string, true> {
  const next = new Map<string, string[]>();
  for (const e of trace.edges) {
    const [a, b] = way === 'from' ? [e.to, e.from] : [e.from, e.to];
    const all = next.get(a);
    if (all) all.push(b);
    else next.set(a, [b]);
  }
  const seen = new Map<string, true>([[self, true]]);
  const todo = [self];
  for (let id = todo.pop(); id !== undefined; id = todo.pop()) {
    for (const n of next.get(id) ?? []) {
      if (seen.has(n)) continue;
      seen.set(n, true);
      todo.push(n);
    }
  }
  return seen;
}

function howOf(trace: Trace, by: Map<string, TraceNode>, node: TraceNode): string {
  const e = trace.edges.find((x) => x.to === node.id);
  if (!e) return node.kind === 'event' ? 'a request of its own' : '';
  const from = by.get(e.from);
  return `${words[e.how] ?? e.how} ${from ? (from.kind === 'saga' ? `saga ${from.type ?? from.id}` : (from.type ?? from.id)) : 'something that is not shown'}`;
}
