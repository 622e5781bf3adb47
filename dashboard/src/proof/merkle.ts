// Hashes as docs/guides/auditing.md has them: leaves of events, chains of aggregates, and trees of RFC 6962.

export type Hash = Uint8Array<ArrayBuffer>;

/** The bytes whose SHA-256 is what the parts, one behind the other, hash to. */
async function sha(...parts: Uint8Array[]): Promise<Hash> {
  let size = 0;
  for (const p of parts) size += p.length;
  const all = new Uint8Array(size);
  let at = 0;
  for (const p of parts) {
    all.set(p, at);
    at += p.length;
  }
  return new Uint8Array(await crypto.subtle.digest('SHA-256', all));
}

const zero = new Uint8Array([0]);
const one = new Uint8Array([1]);

/** The leaf of an event, of the very bytes that were stored. */
export const leafOf = (event: Uint8Array) => sha(zero, event);

const node = (left: Hash, right: Hash) => sha(one, left, right);

/** The chain of an aggregate up to its last event. */
export async function chainOf(leaves: Hash[]): Promise<Hash> {
  let chain: Hash = new Uint8Array(32);
  for (const leaf of leaves) chain = await sha(chain, leaf);
  return chain;
}

/** The largest power of two below n. */
function below(n: number): number {
  let k = 1;
  while (k * 2 < n) k *= 2;
  return k;
}

/** A tree over leaves. It remembers the hashes of its subtrees. */
export class Tree {
  private known = new Map<string, Hash>();
  constructor(readonly leaves: Hash[]) {}

  /** The root of the subtree over the leaves from from on, up to but without to. */
  async hash(from = 0, to = this.leaves.length): Promise<Hash> {
    if (to === from) return sha();
    if (to - from === 1) return this.leaves[from] as Hash;
    const key = `${from} ${to}`;
    let h = this.known.get(key);
    if (!h) {
      const k = from + below(to - from);
      h = await node(await this.hash(from, k), await this.hash(k, to));
      this.known.set(key, h);
    }
    return h;
  }
}

/** The ranges of leaves whose subtrees an inclusion proof of a leaf has, in the order of the proof. */
export function siblings(index: number, size: number): [from: number, to: number][] {
  const out: [number, number][] = [];
  let from = 0;
  let to = size;
  while (to - from > 1) {
    const k = from + below(to - from);
    if (index < k) {
      out.unshift([k, to]);
      to = k;
    } else {
      out.unshift([from, k]);
      from = k;
    }
  }
  return out;
}

/** The root that a leaf and its inclusion proof lead to, null where the proof has not as many hashes as it must. */
export async function rootFrom(leaf: Hash, index: number, size: number, proof: Hash[]): Promise<Hash | null> {
  if (!Number.isSafeInteger(index) || !Number.isSafeInteger(size) || index < 0 || index >= size) return null;
  const ranges = siblings(index, size);
  if (ranges.length !== proof.length) return null;
  let h = leaf;
  for (const [i, [from]] of ranges.entries()) {
    const p = proof[i] as Hash;
    h = from > index ? await node(h, p) : await node(p, h);
  }
  return h;
}

export interface Inclusion {
  leaf: Hash;
  proof: Hash[];
}

/**
 * The index of the first leaf that is another one in the tree that the server has, null where none is. ask fetches the inclusion proof of a
 * leaf; there are about as many questions as the tree has levels, since a proof has the hashes of all subtrees beside its leaf.
 */
export async function firstDifferent(tree: Tree, ask: (index: number) => Promise<Inclusion>): Promise<number | null> {
  const size = tree.leaves.length;
  let from = 0;
  let to = size;
  while (from < to) {
    const p = await ask(from);
    if (!same(p.leaf, tree.leaves[from] as Hash)) return from;
    let next: [number, number] | null = null;
    for (const [i, range] of siblings(from, size).entries()) {
      if (range[0] <= from || range[0] >= to) continue; // it is known to be the same, or later than what is looked for
      const theirs = p.proof[i];
      if (!theirs || !same(theirs, await tree.hash(...range))) {
        next = range;
        break;
      }
    }
    if (!next) return null;
    [from, to] = next;
  }
  return null;
}

export function same(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((x, i) => x === b[i]);
}

export function hex(h: Uint8Array): string {
  return [...h].map((b) => b.toString(16).padStart(2, '0')).join('');
}

/** A hash of 64 hexadecimal digits. Throws an Error for what is none. */
export function unhex(text: unknown): Hash {
  if (typeof text !== 'string' || !/^[0-9a-f]{64}$/.test(text)) throw new Error('The server sent a hash that is not 64 hexadecimal digits.');
  return new Uint8Array(text.match(/../g)?.map((x) => parseInt(x, 16)) ?? []);
}

export function unbase64(text: string): Hash {
  const raw = atob(text);
  const out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}
