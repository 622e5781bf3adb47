package erasure

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// hash is a SHA-256, which is text in JSON.
type hash [sha256.Size]byte

// String returns the hash in lower-case hexadecimal digits.
func (h hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText is String.
func (h hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText has written.
func (h *hash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return errors.New("a hash has 64 hexadecimal digits")
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// tree is a Merkle tree of RFC 6962 to which leaves are added one by one. It holds only the roots of its full subtrees,
// the largest first, so that it can be stored between two parts of a long stream.
type tree struct {
	Size uint64 `json:"size"`
	Edge []hash `json:"edge"`
}

// IsZero reports whether the tree has no leaves.
func (t *tree) IsZero() bool { return t.Size == 0 }

// add adds a leaf, by its hash.
func (t *tree) add(leaf hash) {
	t.Edge = append(t.Edge, leaf)
	for n := t.Size; n&1 == 1; n >>= 1 {
		last := len(t.Edge) - 1
		t.Edge[last-1] = parent(t.Edge[last-1], t.Edge[last])
		t.Edge = t.Edge[:last]
	}
	t.Size++
}

// root returns the root hash of all leaves.
func (t *tree) root() hash {
	if len(t.Edge) == 0 {
		return sha256.Sum256(nil)
	}
	root := t.Edge[len(t.Edge)-1]
	for i := len(t.Edge) - 2; i >= 0; i-- {
		root = parent(t.Edge[i], root)
	}
	return root
}

// clone returns a copy to continue with.
func (t *tree) clone() tree { return tree{t.Size, append([]hash(nil), t.Edge...)} }

// parent is the hash of a node above two others.
func parent(left, right hash) hash {
	var in [1 + 2*sha256.Size]byte
	in[0] = 1
	copy(in[1:], left[:])
	copy(in[1+sha256.Size:], right[:])
	return sha256.Sum256(in[:])
}
