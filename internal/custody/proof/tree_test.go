package proof_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"j17"
	"j17/internal/custody/proof"
)

// leaves returns the leaves of n made-up events.
func leaves(n int) [][sha256.Size]byte {
	all := make([][sha256.Size]byte, n)
	for i := range all {
		all[i] = j17.Leaf(fmt.Append(nil, i))
	}
	return all
}

// TestRootsOfTheStandard compares roots with those of the eight entries that RFC 6962's reference implementation is
// tested with.
func TestRootsOfTheStandard(t *testing.T) {
	t.Parallel()
	entries := []string{
		"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f",
	}
	roots := []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
	var tree proof.Tree
	for i, want := range roots {
		if got := tree.Root(); hex.EncodeToString(got[:]) != want || tree.Size() != uint64(i) {
			t.Errorf("the root of %d entries is %x, want %s", i, got, want)
		}
		if i < len(entries) {
			entry, err := hex.DecodeString(entries[i])
			if err != nil {
				t.Fatal(err)
			}
			tree.Add(j17.Leaf(entry))
		}
	}
}

// TestInclusion proves each leaf of trees of many sizes, and nothing else.
func TestInclusion(t *testing.T) {
	t.Parallel()
	all := leaves(70)
	for size := 1; size <= len(all); size++ {
		root := proof.Root(all[:size])
		for i := range size {
			tree := proof.Prover(uint64(i), uint64(size))
			for _, leaf := range all[:size] {
				tree.Add(leaf)
			}
			leaf, path := tree.Proof()
			if leaf != all[i] || tree.Root() != root ||
				!proof.CheckInclusion(uint64(i), uint64(size), leaf, path, root) {
				t.Fatalf("leaf %d of %d: %x, %x", i, size, leaf, path)
			}

			// Of another leaf, at another place, in another tree it proves nothing.
			if proof.CheckInclusion(uint64(i), uint64(size), all[(i+1)%len(all)], path, root) ||
				proof.CheckInclusion(uint64(i), uint64(size), leaf, append(path, leaf), root) ||
				proof.CheckInclusion(uint64(i), uint64(size), leaf, path, leaf) && size > 1 ||
				proof.CheckInclusion(uint64(i+1), uint64(size), leaf, path, root) && size > 1 ||
				len(path) > 0 && proof.CheckInclusion(uint64(i), uint64(size), leaf, path[1:], root) {
				t.Fatalf("leaf %d of %d: what does not hold is held to be true", i, size)
			}
		}
	}
	for _, wrong := range [][2]uint64{{0, 0}, {1, 1}, {1 << 63, 1<<63 + 1}, {0, 1 << 63}} {
		if proof.CheckInclusion(wrong[0], wrong[1], all[0], nil, all[0]) {
			t.Errorf("leaf %d of %d is held to be there", wrong[0], wrong[1])
		}
	}
	for _, wrong := range [][2]uint64{{0, 0}, {0, 1}, {2, 1}, {1 << 63, 1<<63 + 1}} {
		if proof.CheckConsistency(wrong[0], wrong[1], nil, all[0], all[0]) {
			t.Errorf("a tree of %d is held to begin with one of %d", wrong[1], wrong[0])
		}
	}
}

// TestSizesBeyondAllTrees asks about trees that nobody can have: the answer comes, and is no.
func TestSizesBeyondAllTrees(t *testing.T) {
	t.Parallel()
	var leaf [sha256.Size]byte
	for _, size := range []uint64{1<<62 + 1, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		for _, nodes := range []int{0, 1, 63, 64, 65, 1000} {
			some := make([][sha256.Size]byte, nodes)
			if proof.CheckInclusion(0, size, leaf, some, leaf) || proof.CheckInclusion(
				size-1, size, leaf, some, leaf,
			) || proof.CheckConsistency(1, size, some, leaf, leaf) {
				t.Errorf("%d nodes hold for a tree of %d leaves", nodes, size)
			}
		}
	}
	if proof.CheckInclusion(0, 1<<62, leaf, make([][sha256.Size]byte, 62), leaf) {
		t.Error("a proof that leads elsewhere holds")
	}
}
