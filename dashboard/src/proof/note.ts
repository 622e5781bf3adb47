// Signed notes of C2SP: what a log signs, and the keys by which it does.

import { hex, unbase64, type Hash } from './merkle';

export interface Checkpoint {
  origin: string;
  size: number;
  root: Hash;
}

/**
 * The checkpoint in a signed note, where one of the keys has signed it. Throws an Error that says what is wrong.
 */
export async function openCheckpoint(note: string, vkeys: string[]): Promise<Checkpoint> {
  const cut = note.lastIndexOf('\n\n');
  if (cut < 0) throw new Error('The checkpoint is no signed note.');
  const text = note.slice(0, cut + 1);
  if (!(await signed(text, note.slice(cut + 2), vkeys))) throw new Error('None of the keys of the log has signed the checkpoint.');
  const [origin, size, root] = text.split('\n');
  if (!origin || !size || !/^(0|[1-9]\d{0,15})$/.test(size) || !root) throw new Error('The checkpoint does not have an origin, a size and a root.');
  const raw = unbase64(root);
  if (raw.length !== 32) throw new Error('The root of the checkpoint is not 32 bytes.');
  return { origin, size: Number(size), root: raw };
}

async function signed(text: string, signatures: string, vkeys: string[]): Promise<boolean> {
  for (const line of signatures.split('\n')) {
    const m = /^— (\S+) ([A-Za-z0-9+/=]+)$/.exec(line);
    if (!m) continue;
    const raw = unbase64(m[2] as string);
    for (const vkey of vkeys) {
      const [name, id, key] = split(vkey);
      if (name !== m[1] || raw.length !== 68 || hex(raw.slice(0, 4)) !== id || key.length !== 33 || key[0] !== 1) continue;
      const pub = await crypto.subtle.importKey('raw', key.slice(1), { name: 'Ed25519' }, false, ['verify']);
      if (await crypto.subtle.verify({ name: 'Ed25519' }, pub, raw.slice(4), new TextEncoder().encode(text))) return true;
    }
  }
  return false;
}

/** Name, id and key in a verifier key. The key itself may have plus signs. */
function split(vkey: string): [string, string, Hash] {
  const [name, id, ...rest] = vkey.split('+');
  try {
    return [name ?? '', id ?? '', unbase64(rest.join('+'))];
  } catch {
    return ['', '', new Uint8Array()];
  }
}
