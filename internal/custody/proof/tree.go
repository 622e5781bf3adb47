// Package proof proves that events are those that were stored: it has trees of RFC 6962, chains of streams, signed
// notes, and the verification of exports, checkpoints and certificates. It is pure: it needs no store, no clock and no
// server.
package proof

import (
	"crypto/sha256"

	"golang.org/x/mod/sumdb/tlog"
)

// Tree is a Merkle tree of RFC 6962 to which leaves are added one by one. It takes the same memory however many there
// are. The zero Tree has no leaves.
type Tree struct {
	size int64
	// edge has, for each level, the last node with an even number: the root is computed from these.
	edge [64]tlog.Hash
	// kept has the nodes that a proof needs, by their number in tlog's order; nil if no proof is needed.
	kept  map[int64]tlog.Hash
	index int64
	leaf  tlog.Hash
	of    int64
}

// Prover returns a tree that can prove its leaf at an index, counted from 0, once it has size leaves.
func Prover(index, size uint64) *Tree {
	t := &Tree{kept: map[int64]tlog.Hash{}, index: int64(index), of: int64(size)}
	// The reader collects the nodes that the proof needs.
	_, _ = tlog.ProveRecord(t.of, t.index, tlog.HashReaderFunc(func(nodes []int64) ([]tlog.Hash, error) {
		for _, node := range nodes {
			t.kept[node] = tlog.Hash{}
		}
		return make([]tlog.Hash, len(nodes)), nil
	}))
	return t
}

// Add adds a leaf.
func (t *Tree) Add(leaf [sha256.Size]byte) {
	h, level := tlog.Hash(leaf), 0
	if t.size == t.index {
		t.leaf = h
	}
	for n := t.size; ; n, level = n>>1, level+1 {
		if t.kept != nil {
			if node := tlog.StoredHashIndex(level, n); t.wanted(node) {
				t.kept[node] = h
			}
		}
		if n&1 == 0 {
			t.edge[level] = h
			break
		}
		h = tlog.NodeHash(t.edge[level], h)
	}
	t.size++
}

func (t *Tree) wanted(node int64) bool {
	_, ok := t.kept[node]
	return ok
}

// Size returns how many leaves the tree has.
func (t *Tree) Size() uint64 { return uint64(t.size) }

// Root returns the root of the tree; that of an empty one is the hash of nothing.
func (t *Tree) Root() [sha256.Size]byte {
	root, err := tlog.TreeHash(t.size, tlog.HashReaderFunc(func(nodes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(nodes))
		for i, node := range nodes {
			level, _ := tlog.SplitStoredHashIndex(node)
			hashes[i] = t.edge[level]
		}
		return hashes, nil
	}))
	if err != nil {
		panic("proof: the root of a tree in memory: " + err.Error()) // the reader returns no errors
	}
	return root
}

// Proof returns the leaf of a Prover, and the proof that the tree has it. It panics if the tree does not have its size
// yet.
func (t *Tree) Proof() (leaf [sha256.Size]byte, proof [][sha256.Size]byte) {
	if t.kept == nil || t.size != t.of {
		panic("proof: Proof of a tree that is not a whole Prover")
	}
	hashes, err := tlog.ProveRecord(t.of, t.index, tlog.HashReaderFunc(func(nodes []int64) ([]tlog.Hash, error) {
		kept := make([]tlog.Hash, len(nodes))
		for i, node := range nodes {
			kept[i] = t.kept[node]
		}
		return kept, nil
	}))
	if err != nil {
		panic("proof: a leaf outside of the tree: " + err.Error())
	}
	return t.leaf, Hashes(hashes)
}

// Root returns the root of the tree of leaves.
func Root(leaves [][sha256.Size]byte) [sha256.Size]byte {
	var t Tree
	for _, leaf := range leaves {
		t.Add(leaf)
	}
	return t.Root()
}

// Upper bounds of valid input: tlog does not terminate for trees with more than maxSize leaves, and a proof has one
// node for each level.
const (
	maxSize  = 1 << 62
	maxNodes = 64
)

// CheckInclusion reports whether a proof shows that the tree of size leaves with a root has a leaf at an index, counted
// from 0.
func CheckInclusion(
	index, size uint64, leaf [sha256.Size]byte, proof [][sha256.Size]byte, root [sha256.Size]byte,
) bool {
	if size > maxSize || index >= size || len(proof) > maxNodes {
		return false
	}
	n, t := int64(index), int64(size)
	return tlog.CheckRecord(nodes(proof), t, root, n, leaf) == nil
}

// CheckConsistency reports whether a proof shows that the tree of size to begins with the leaves of the tree of size
// from.
func CheckConsistency(from, to uint64, proof [][sha256.Size]byte, fromRoot, toRoot [sha256.Size]byte) bool {
	if to > maxSize || from < 1 || from > to || len(proof) > maxNodes {
		return false
	}
	n, t := int64(from), int64(to)
	return tlog.CheckTree(nodes(proof), t, toRoot, n, fromRoot) == nil
}

// Hashes returns nodes of tlog as plain hashes.
func Hashes[P ~[]tlog.Hash](of P) [][sha256.Size]byte {
	hashes := make([][sha256.Size]byte, len(of))
	for i, h := range of {
		hashes[i] = h
	}
	return hashes
}

func nodes(of [][sha256.Size]byte) []tlog.Hash {
	hashes := make([]tlog.Hash, len(of))
	for i, h := range of {
		hashes[i] = h
	}
	return hashes
}
