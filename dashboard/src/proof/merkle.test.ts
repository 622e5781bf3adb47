import { expect, test } from 'vitest';
import { chainOf, firstDifferent, hex, leafOf, rootFrom, siblings, Tree, unhex, type Hash } from './merkle';

const leaves = (n: number, other = -1) => Promise.all(Array.from({ length: n }, (_, i) => leafOf(new TextEncoder().encode(i === other ? 'other' : `event ${i}`))));

async function proof(tree: Tree, i: number) {
  return Promise.all(siblings(i, tree.leaves.length).map((r) => tree.hash(...r)));
}

test('the tree without leaves and the empty leaf are those of RFC 6962', async () => {
  expect(hex(await new Tree([]).hash())).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
  expect(hex(await leafOf(new Uint8Array()))).toBe('6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d');
});

test('each leaf leads to the root, and no other leaf does', async () => {
  for (const n of [1, 2, 3, 7, 8, 13]) {
    const tree = new Tree(await leaves(n));
    const root = hex(await tree.hash());
    for (let i = 0; i < n; i++) {
      const p = await proof(tree, i);
      expect(hex((await rootFrom(tree.leaves[i] as Hash, i, n, p)) as Hash)).toBe(root);
      expect(hex((await rootFrom(unhex('00'.repeat(32)), i, n, p)) as Hash)).not.toBe(root);
      expect(await rootFrom(tree.leaves[i] as Hash, i, n, [...p, p[0] ?? unhex('00'.repeat(32))])).toBeNull();
    }
  }
});

test('the first leaf that differs is named with few questions', async () => {
  for (const n of [1, 2, 5, 8, 100]) {
    const theirs = new Tree(await leaves(n));
    for (let other = 0; other < n; other += Math.max(1, n >> 3)) {
      let asked = 0;
      const got = await firstDifferent(new Tree(await leaves(n, other)), async (i) => {
        asked++;
        return { leaf: theirs.leaves[i] as Hash, proof: await proof(theirs, i) };
      });
      expect(got).toBe(other);
      expect(asked).toBeLessThan(9);
    }
    expect(await firstDifferent(theirs, async (i) => ({ leaf: theirs.leaves[i] as Hash, proof: await proof(theirs, i) }))).toBeNull();
  }
});

test('a chain depends on the order', async () => {
  const [a, b] = (await leaves(2)) as [Hash, Hash];
  expect(hex(await chainOf([a, b]))).not.toBe(hex(await chainOf([b, a])));
});

test('hashes are 64 digits', () => {
  for (const wrong of [undefined, 1, '', 'ab', 'g'.repeat(64), 'AB'.repeat(32)]) expect(() => unhex(wrong)).toThrow();
});
