package envlog

import (
	"encoding/hex"

	"j17/internal/base/wire"
)

// Wire returns the proof as clients see it.
func (p *Inclusion) Wire() wire.InclusionProof {
	return wire.InclusionProof{
		Index: p.Index, Size: p.Size, LeafHash: hex.EncodeToString(p.Leaf[:]), Proof: wire.Hexes(p.Proof),
		Root: hex.EncodeToString(p.Root[:]),
	}
}

// Wire returns the key as clients see it.
func (k *Key) Wire() wire.LogKey {
	return wire.LogKey{
		Name: k.Name, VKey: k.VKey, Status: string(k.Status()), CreatedAt: k.CreatedAt, RetiredAt: k.RetiredAt,
	}
}
