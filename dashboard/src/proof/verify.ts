// Proves in the browser that the events of an aggregate are those that were stored: fetches their bytes, hashes them here, and compares
// with the root of the aggregate, its chain, and the signed checkpoint of the environment's log.

import { ApiError, call, part, send } from '../api/client';
import { isObject, parse } from '../data/json';
import { chainOf, firstDifferent, hex, leafOf, rootFrom, same, Tree, unhex, type Hash, type Inclusion } from './merkle';
import { openCheckpoint } from './note';

export interface Verdict {
  verified: boolean;
  /** What does not hold, in a sentence; '' where all does. */
  problem: string;
  /** The version of the first event that is another one, where there is one. */
  version?: number;
  events: number;
  bytes: number;
  erased: number;
  root: string;
  /** Where the events are in the log, of how many, and how many of them were looked for there. */
  log?: { first: number; last: number; size: number; root: string; origin: string; checked: number };
  checkpoint?: string;
  keys?: string[];
  inclusions?: { index: number; size: number; leaf_hash: string; proof: string[]; root: string }[];
}

interface LogProof {
  index: number;
  size: number;
  leaf_hash: string;
  proof: string[];
  root: string;
}

/** The most events of an aggregate that are looked for in the log one by one. */
const mostInLog = 100;

class Wrong extends Error {
  constructor(
    message: string,
    readonly version?: number,
  ) {
    super(message);
  }
}

/** Verifies the events of an aggregate. api makes a path of the environment's administration. Throws ApiErrors only. */
export async function verify(api: (path: string) => string, type: string, id: string, progress: (done: string) => void): Promise<Verdict> {
  const v: Verdict = { verified: false, problem: '', events: 0, bytes: 0, erased: 0, root: '' };
  if (!globalThis.crypto?.subtle) {
    v.problem = 'This browser computes hashes only over https or on localhost. Open the dashboard there.';
    return v;
  }
  try {
    await run(v, api, `${part(type)}/${part(id)}`, progress);
    v.verified = true;
  } catch (e) {
    if (e instanceof ApiError && e.code !== 'corruption') throw e;
    // An answer that breaks off proves nothing.
    if (e instanceof TypeError) throw new ApiError(0, 'unreachable', 'The answer of the server broke off. Verify again.', '', null);
    v.problem = e instanceof Error ? e.message : String(e);
    if (e instanceof Wrong && e.version) v.version = e.version;
  }
  return v;
}

async function run(v: Verdict, api: (path: string) => string, of: string, progress: (done: string) => void) {
  // The head first: events that come meanwhile are left out.
  const head = await call<{ root: string; size: number } & object>(api(`audit/merkle-root/${of}`));
  const size = Number(head.size);
  progress('Fetching the events');
  const lines = await eventLines(api(`aggregates/${of}/events`), size, progress);
  v.events = lines.length;
  const leaves: Hash[] = [];
  const ids: string[] = [];
  const erased: boolean[] = [];
  const text = new TextDecoder();
  for (const line of lines) {
    v.bytes += line.length;
    leaves.push(await leafOf(line));
    let e;
    try {
      e = parse(text.decode(line));
    } catch {
      throw new Wrong(`Event ${leaves.length} is no JSON.`, leaves.length);
    }
    ids.push(isObject(e) ? String(e.stream_id) : '');
    erased.push(isObject(e) && e.type === '_was_tombstoned');
  }
  v.erased = erased.filter(Boolean).length;

  // The tree of the aggregate.
  const tree = new Tree(leaves);
  const root = await tree.hash();
  v.root = hex(root);
  if (lines.length !== size) throw new Wrong(`The server says that there are ${size} events, and sent ${lines.length}.`);
  if (!same(root, unhex(head.root))) {
    const first = await firstDifferent(tree, (i) => inclusion(api(`audit/merkle-proof/${of}/${i}`)));
    throw first === null
      ? new Wrong('The events have another root than the server says, though each event is in the tree of the server.')
      : new Wrong(`Event ${first + 1} (${ids[first]}) is not the one that was stored.`, first + 1);
  }

  // Its chain, which has no more events now than it had, or the comparison is left to the log.
  const chain = await call<{ valid: boolean; length: number; head: string; problem?: string } & object>(api(`audit/verify-chain/${of}`));
  if (!chain.valid) throw new Wrong(`The chain of the aggregate breaks: ${chain.problem ?? 'the server does not say where'}.`);
  if (Number(chain.length) === size && !same(await chainOf(leaves), unhex(chain.head))) throw new Wrong('The events have another chain than the server says.');

  // The log: its signed head, and each event in it.
  progress('Verifying the signed checkpoint');
  const keys = (await call<{ keys: { vkey: string }[] } & object>(api('audit/keys'))).keys.map((k) => k.vkey);
  const note = await (await good(api('audit/checkpoint'), 'text/plain')).text();
  v.checkpoint = note;
  v.keys = keys;
  const log = await openCheckpoint(note, keys);
  const at = chosen(size);
  let first = Infinity;
  let last = -1;
  v.inclusions = [];
  for (let i = 0; i < at.length; i += 6) {
    progress(`Looking for events in the log: ${i} of ${at.length}`);
    const some = at.slice(i, i + 6);
    const got = await Promise.all(some.map((n) => call<LogProof & object>(api(`audit/proof/inclusion?stream_id=${part(ids[n] ?? '')}&size=${log.size}`))));
    for (const [j, p] of got.entries()) {
      const n = some[j] as number;
      const index = Number(p.index);
      // The log keeps the leaf of what an erased event was.
      const leaf = erased[n] ? unhex(p.leaf_hash) : (leaves[n] as Hash);
      const found = await rootFrom(leaf, index, log.size, p.proof.map(unhex));
      if (!found || !same(found, log.root)) throw new Wrong(`Event ${n + 1} (${ids[n]}) is not the one in the signed log.`, n + 1);
      v.inclusions.push({ index, size: log.size, leaf_hash: p.leaf_hash, proof: p.proof, root: p.root });
      first = Math.min(first, index);
      last = Math.max(last, index);
    }
  }
  v.log = { first: first + 1, last: last + 1, size: log.size, root: hex(log.root), origin: log.origin, checked: at.length };
}

/** Which events are looked for in the log: all, or the first, the last and some between. */
function chosen(size: number): number[] {
  if (size <= mostInLog) return Array.from({ length: size }, (_, i) => i);
  const out = new Set<number>();
  for (let i = 0; i < mostInLog; i++) out.add(Math.round((i * (size - 1)) / (mostInLog - 1)));
  return [...out];
}

async function inclusion(path: string): Promise<Inclusion> {
  const p = await call<{ leaf_hash: string; proof: string[] } & object>(path);
  return { leaf: unhex(p.leaf_hash), proof: p.proof.map(unhex) };
}

async function good(path: string, accept: string): Promise<Response> {
  const r = await send(path, { headers: { Accept: accept } });
  if (!r.ok) await call(path); // says what is wrong
  return r;
}

/** The bytes of the first events of an aggregate as they are stored, a line each. */
async function eventLines(path: string, most: number, progress: (done: string) => void): Promise<Uint8Array[]> {
  const out: Uint8Array[] = [];
  let start = '';
  while (out.length < most) {
    const n = Math.min(1000, most - out.length);
    const r = await good(`${path}?generation=stored&count=${n}${start ? `&start=${part(start)}` : ''}`, 'application/x-ndjson');
    const bytes = new Uint8Array(await r.arrayBuffer());
    let from = 0;
    const before = out.length;
    for (let i = 0; i <= bytes.length; i++) {
      if (i < bytes.length && bytes[i] !== 10) continue;
      if (i > from && out.length < most) out.push(bytes.slice(from, i));
      from = i + 1;
    }
    start = r.headers.get('X-J17-Next') ?? '';
    if (out.length === before || start === '') break;
    progress(`${out.length} of ${most} events`);
  }
  return out;
}
