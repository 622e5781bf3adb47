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
  const causes = reach(trace, by, me, 'from');
  const consequences = reach(trace, by, me, 'to');
  for (const id of causes.keys()) consequences.delete(id);
  causes.delete(self);
  consequences.delete(self);

  const start = trace.nodes.reduce((m, n) => (causes.has(n.id) ? Math.min(m, n.at_ms) : m), me.at_ms);
  const list: Reason[] = [];
  const add = (ids: Iterable<string>, place: Reason['place']) => {
    const nodes = [...ids].map((id) => by.get(id)).filter((n) => n !== undefined);
    nodes.sort((a, b) => Number(later(a, b)) - Number(later(b, a)) || Number(a.kind !== 'event') - Number(b.kind !== 'event'));
    for (const node of nodes) list.push({ node, how: howOf(trace, by, node), place, after: Math.max(0, node.at_ms - start) });
  };
  add(causes.keys(), 'cause');
  add([self], 'self');
  add(consequences.keys(), 'consequence');
  return list;
}

// What can be reached from an event, against time or with it. A saga runs over a while: what it wrote before it was answered does not follow
// from the answer, and what answered it later was no cause.
function reach(trace: Trace, by: Map<string, TraceNode>, me: TraceNode, way: 'from' | 'to'): Map<string, true> {
  const next = new Map<string, string[]>();
  for (const e of trace.edges) {
    const [a, b] = way === 'from' ? [e.to, e.from] : [e.from, e.to];
    const all = next.get(a);
    if (all) all.push(b);
    else next.set(a, [b]);
  }
  const fits = (id: string) => {
    const node = by.get(id);
    if (!node || node.kind === 'saga') return true;
    return way === 'from' ? !later(node, me) : !later(me, node);
  };
  const seen = new Map<string, true>([[me.id, true]]);
  const todo = [me.id];
  for (let id = todo.pop(); id !== undefined; id = todo.pop()) {
    for (const n of next.get(id) ?? []) {
      if (seen.has(n) || !fits(n)) continue;
      seen.set(n, true);
      todo.push(n);
    }
  }
  return seen;
}

/** Whether a node is later than another one: events have the order of their positions, all others that of their times. */
function later(a: TraceNode, b: TraceNode): boolean {
  if (a.at_ms !== b.at_ms || a.kind !== 'event' || b.kind !== 'event') return a.at_ms > b.at_ms;
  const number = (id: string) => Number(id.slice(id.indexOf('-') + 1));
  return number(a.id) > number(b.id);
}

function howOf(trace: Trace, by: Map<string, TraceNode>, node: TraceNode): string {
  const e = trace.edges.find((x) => x.to === node.id);
  if (!e) return node.kind === 'event' ? 'a request of its own' : '';
  const from = by.get(e.from);
  return `${words[e.how] ?? e.how} ${from ? (from.kind === 'saga' ? `saga ${from.type ?? from.id}` : (from.type ?? from.id)) : 'something that is not shown'}`;
}
