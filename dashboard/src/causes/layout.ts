// Where the nodes of a trace stand: a lane for each aggregate in the order of their first event, from left to right by time, with the time in
// which nothing happens folded. It is plain arithmetic on the answer of the route; what is drawn is the page's.

import type { Trace, TraceNode } from '../api/types';

export interface Placed {
  node: TraceNode;
  x: number;
  lane: number;
  /** How it is drawn. */
  shape: 'full' | 'ring' | 'square' | 'cross' | 'bar' | 'clock';
  /** The width of a bar. */
  width: number;
  /** On which of two lines below its mark the name stands, so that neighbours do not cover each other. */
  line: number;
  /** Whether the name stands to the left of the mark, as at the right border. */
  left: boolean;
}

export interface Joined {
  from: Placed;
  to: Placed;
  how: string;
}

export interface Lane {
  key: string;
  title: string;
  id: string;
}

export interface Layout {
  lanes: Lane[];
  nodes: Placed[];
  edges: Joined[];
  /** Times since the first node, above the lanes. */
  ticks: { x: number; text: string }[];
  /** Where idle time is folded. */
  folds: { x: number; text: string }[];
  width: number;
}

/** The least and most room between two moments, and the room before the first. */
const step = 84;
const first = 44;

/** How long since the first event, as short as it may be: 0 ms, 337 ms, 4.2 s, 3 min. */
export function since(ms: number): string {
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} days`;
}

/** The lane in which a node stands: that of its aggregate, or its own. */
function laneOf(n: TraceNode): string {
  if (n.kind === 'saga') return n.id;
  if (n.kind === 'delivery') return `delivery ${n.key ?? n.type ?? n.id}`;
  return n.key ?? n.id;
}

function titleOf(n: TraceNode): Lane {
  const key = laneOf(n);
  if (n.kind === 'saga') return { key, title: `saga ${n.type ?? ''}`.trim(), id: n.id };
  if (n.kind === 'delivery') return { key, title: n.type ?? 'delivery', id: 'listener' };
  const cut = (n.key ?? '').indexOf(':');
  return cut < 0 ? { key, title: n.kind, id: n.id } : { key, title: (n.key ?? '').slice(0, cut), id: (n.key ?? '').slice(cut + 1) };
}

/** Lays a trace out. folded says whether idle time is folded; else the room is in proportion to the time, between bounds. */
export function layout(trace: Trace, folded: boolean): Layout {
  const implied = new Set(trace.edges.filter((e) => e.how === 'implied').map((e) => e.to));
  const sorted = trace.nodes.map((n, i) => [n, i] as const).sort(([a, i], [b, j]) => a.at_ms - b.at_ms || i - j);
  const start = sorted[0]?.[0].at_ms ?? 0;

  // Columns: nodes of one moment in one lane stand beside each other, others share theirs.
  const lanes: Lane[] = [];
  const laneAt = new Map<string, number>();
  const nodes: Placed[] = [];
  const ticks: Layout['ticks'] = [];
  const folds: Layout['folds'] = [];
  const gaps = sorted.slice(1).map(([n], i) => n.at_ms - (sorted[i]?.[0].at_ms ?? 0)).filter((g) => g > 0).sort((a, b) => a - b);
  const usual = gaps[gaps.length >> 1] ?? 1;
  let x = first;
  let last: number | null = null;
  let taken = new Set<number>();
  for (const [node] of sorted) {
    const key = laneOf(node);
    let lane = laneAt.get(key);
    if (lane === undefined) {
      lane = lanes.length;
      laneAt.set(key, lane);
      lanes.push(titleOf(node));
    }
    if (last === null) {
      ticks.push({ x, text: '0 ms' });
    } else if (node.at_ms > last || taken.has(lane)) {
      const gap = node.at_ms - last;
      const idle = gap > Math.max(2000, usual * 8);
      const room = gap <= 0 || folded ? step : Math.max(step, Math.min(600, (gap / Math.max(usual, 1)) * (step / 2)));
      if (idle && folded) folds.push({ x: x + room / 2, text: since(gap) });
      x += room;
      if (gap > 0) ticks.push({ x, text: since(node.at_ms - start) });
      taken = new Set();
    }
    taken.add(lane);
    last = node.at_ms;
    nodes.push({ node, x, lane, shape: shapeOf(node, implied.has(node.id)), width: 0, line: 0, left: false });
  }
  // The last ones have room for their names.
  const width = nodes.reduce((most, n) => (n.shape === 'bar' || n.x < x - 130 ? most : Math.max(most, n.x + 28 + 6.6 * label(n.node).length)), x + 120);

  const by = new Map(nodes.map((n) => [n.node.id, n]));
  const edges: Joined[] = [];
  for (const e of trace.edges) {
    const from = by.get(e.from);
    const to = by.get(e.to);
    if (from && to) edges.push({ from, to, how: e.how });
  }

  // A saga's bar goes on until the last thing that came of it.
  for (const n of nodes) {
    if (n.shape !== 'bar') continue;
    let end = n.x + 40;
    for (const e of edges) if (e.from === n || e.to === n) end = Math.max(end, e.from.x, e.to.x);
    n.width = end - n.x + 8;
  }

  // Names of neighbours in a lane take turns above and below.
  const beside = new Map<number, Placed>();
  for (const n of nodes) {
    const before = beside.get(n.lane);
    if (before && n.x - before.x < 12 + 6.6 * Math.max(label(n.node).length, label(before.node).length) && n.shape !== 'bar') n.line = before.line === 0 ? 1 : 0;
    n.left = n.x > width - 130 && n.x > 200;
    beside.set(n.lane, n);
  }
  return { lanes, nodes, edges, ticks, folds, width };
}

function shapeOf(n: TraceNode, implied: boolean): Placed['shape'] {
  switch (n.kind) {
    case 'saga':
      return 'bar';
    case 'refusal':
      return 'cross';
    case 'delivery':
      return 'square';
    case 'scheduled':
      return 'clock';
    default:
      return implied ? 'ring' : 'full';
  }
}

/** What stands beside a node. */
export function label(n: TraceNode): string {
  switch (n.kind) {
    case 'saga':
      return n.type ?? 'saga';
    case 'refusal':
      return `${n.type ?? ''} refused`.trim();
    case 'delivery':
      return n.status ?? 'delivery';
    case 'scheduled':
      return `${n.type ?? 'scheduled'} ${n.status ?? ''}`.trim();
    default:
      return n.type ?? n.id;
  }
}
