package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// StreamRoot is the root of the tree over the events of a stream. Hashes are 64 hexadecimal digits, here and in all
// proofs.
type StreamRoot struct {
	Root string `json:"root"`
	Size uint64 `json:"size"`
}

// InclusionProof shows that a tree of Size leaves has one at Index, counted from 0.
type InclusionProof struct {
	Index    uint64   `json:"index"`
	Size     uint64   `json:"size"`
	LeafHash string   `json:"leaf_hash"`
	Proof    []string `json:"proof"`
	Root     string   `json:"root"`
}

// InclusionCheck asks whether a proof holds.
type InclusionCheck struct {
	Index    *uint64   `json:"index" must:"a whole number from 0 on"`
	Size     *uint64   `json:"size" must:"a whole number from 1 on"`
	LeafHash *string   `json:"leaf_hash" must:"64 hexadecimal digits"`
	Proof    *[]string `json:"proof" must:"an array of hashes, each of 64 hexadecimal digits"`
	Root     *string   `json:"root" must:"64 hexadecimal digits"`
}

// Validity reports whether a proof holds.
type Validity struct {
	Valid bool `json:"valid"`
}

// ChainCheck reports whether the chain of a stream holds. Head is its last hash, as the events say; Problem what is
// wrong.
type ChainCheck struct {
	Valid   bool   `json:"valid"`
	Length  uint64 `json:"length"`
	Head    string `json:"head"`
	Problem string `json:"problem,omitempty"`
}

// ConsistencyProof shows that the tree of To leaves begins with that of From.
type ConsistencyProof struct {
	From     uint64   `json:"from"`
	To       uint64   `json:"to"`
	Proof    []string `json:"proof"`
	FromRoot string   `json:"from_root"`
	ToRoot   string   `json:"to_root"`
}

// LogKey is a public key of an environment's log. VKey is the verifier key as C2SP's signed notes have it.
type LogKey struct {
	Name      string    `json:"name"`
	VKey      string    `json:"vkey"`
	Status    string    `json:"status"`
	CreatedAt time.Time `json:"created_at"`
	RetiredAt time.Time `json:"retired_at,omitzero"`
}

// LogKeys are all that a log has had, the newest first.
type LogKeys struct {
	Keys []LogKey `json:"keys"`
}

// LogKeyMade has the key that signs from now on.
type LogKeyMade struct {
	Key LogKey `json:"key"`
}

// Hexes returns hashes as people see them.
func Hexes(hashes [][sha256.Size]byte) []string {
	texts := make([]string, len(hashes))
	for i := range hashes {
		texts[i] = hex.EncodeToString(hashes[i][:])
	}
	return texts
}
