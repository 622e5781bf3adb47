// What differs between two texts, line by line, and putting the changes of two people together.

/** Lines of one text in place of lines of another: base from a to b, text from c to d, all counted from 0, the ends not included. */
export interface Hunk {
  a: number;
  b: number;
  c: number;
  d: number;
}

/** How many steps of editing are looked for before two stretches count as different from end to end. */
const maxSteps = 1000;

/** The hunks that lead from one list of lines to another, in their order, by Myers's way of looking for few of them. */
export function hunks(base: string[], text: string[]): Hunk[] {
  // What both begin and end with is not looked at.
  let head = 0;
  while (head < base.length && head < text.length && base[head] === text[head]) head++;
  let tail = 0;
  while (tail < base.length - head && tail < text.length - head && base[base.length - 1 - tail] === text[text.length - 1 - tail]) tail++;
  const n = base.length - head - tail;
  const m = text.length - head - tail;
  if (n === 0 && m === 0) return [];
  const whole = [{ a: head, b: head + n, c: head, d: head + m }];
  if (n === 0 || m === 0) return whole;

  // How far each diagonal comes with so many steps.
  const size = Math.min(n + m, maxSteps);
  const far = new Int32Array(2 * size + 3);
  const trace: Int32Array[] = [];
  const mid = size + 1;
  let steps = -1;
  search: for (let s = 0; s <= size; s++) {
    trace.push(far.slice(mid - s - 1, mid + s + 2));
    for (let k = -s; k <= s; k += 2) {
      let x = k === -s || (k !== s && (far[mid + k - 1] as number) < (far[mid + k + 1] as number)) ? (far[mid + k + 1] as number) : (far[mid + k - 1] as number) + 1;
      while (x < n && x - k < m && base[head + x] === text[head + x - k]) x++;
      far[mid + k] = x;
      if (x >= n && x - k >= m) {
        steps = s;
        break search;
      }
    }
  }
  if (steps < 0) return whole;

  // Back along the way, one line taken away or put in a step.
  const out: Hunk[] = [];
  let x = n;
  let y = m;
  for (let s = steps; s > 0; s--) {
    const before = trace[s] as Int32Array;
    const at = (k: number) => before[k + s + 1] as number;
    const k = x - y;
    const down = k === -s || (k !== s && at(k - 1) < at(k + 1));
    const from = down ? k + 1 : k - 1;
    const px = at(from);
    const py = px - from;
    const step = down ? { a: head + px, b: head + px, c: head + py, d: head + py + 1 } : { a: head + px, b: head + px + 1, c: head + py, d: head + py };
    const next = out[0];
    if (next && next.a === step.b && next.c === step.d) out[0] = { a: step.a, b: next.b, c: step.c, d: next.d };
    else out.unshift(step);
    x = px;
    y = py;
  }
  return out;
}

export interface Marks {
  /** Lines of the text, from 0, that the base has not. */
  added: number[];
  /** Lines of the text, from 0, before which lines of the base are gone. */
  gone: number[];
  /** How many lines are changed, put in or taken away. */
  count: number;
}

/** Which lines of a text differ from another one. */
export function marks(base: string[], text: string[]): Marks {
  const out: Marks = { added: [], gone: [], count: 0 };
  for (const h of hunks(base, text)) {
    for (let i = h.c; i < h.d; i++) out.added.push(i);
    if (h.c === h.d) out.gone.push(Math.min(h.c, text.length - 1));
    out.count += Math.max(h.b - h.a, h.d - h.c);
  }
  return out;
}

/** A line of a comparison: what only the base has, what only the text has, and what stands around both. '…' leaves lines out. */
export interface Row {
  sign: '' | '+' | '−' | '…';
  /** The number of the line, in the text where it has it; 0 where lines are left out. */
  line: number;
  text: string;
}

/** Two texts as one list of lines, with so many unchanged ones around each change. */
export function compared(base: string, text: string, around = 3): Row[] {
  const a = base.split('\n');
  const b = text.split('\n');
  const out: Row[] = [];
  let done = 0;
  const all = hunks(a, b);
  for (const [i, h] of all.entries()) {
    const from = Math.max(done, h.c - around);
    if (from > done) out.push({ sign: '…', line: 0, text: '' });
    for (let n = from; n < h.c; n++) out.push({ sign: '', line: n + 1, text: b[n] as string });
    for (let n = h.a; n < h.b; n++) out.push({ sign: '−', line: n + 1, text: a[n] as string });
    for (let n = h.c; n < h.d; n++) out.push({ sign: '+', line: n + 1, text: b[n] as string });
    const next = all[i + 1];
    done = Math.min(h.d + around, next ? next.c : b.length);
    for (let n = h.d; n < done; n++) out.push({ sign: '', line: n + 1, text: b[n] as string });
  }
  if (out.length > 0 && done < b.length) out.push({ sign: '…', line: 0, text: '' });
  return out;
}

/**
 * A text with the changes of two people, who both began with base; null where they have changed the same or neighbouring lines, so
 * that somebody has to decide.
 */
export function merged(base: string, mine: string, theirs: string): string | null {
  const b = base.split('\n');
  const sides = [mine, theirs].map((text) => {
    const lines = text.split('\n');
    return hunks(b, lines).map((h) => ({ a: h.a, b: h.b, lines: lines.slice(h.c, h.d) }));
  });
  const all = sides.flat().sort((x, y) => x.a - y.a || x.b - y.b);
  const out: string[] = [];
  let at = 0;
  let last: (typeof all)[number] | null = null;
  for (const h of all) {
    if (last && h.a === last.a && h.b === last.b && h.lines.join('\n') === last.lines.join('\n')) continue; // both did the same
    if (last && h.a <= last.b) return null;
    out.push(...b.slice(at, h.a), ...h.lines);
    at = h.b;
    last = h;
  }
  return [...out, ...b.slice(at)].join('\n');
}
