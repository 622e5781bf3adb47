// Package erasure removes personal data for good, and only it does: what a tombstone asks for is found, its events are replaced by
// markers, whoever keeps anything of them beside the events lets go of it, and the old bytes are removed from disk.
package erasure

import (
	"context"
	"time"

	"j17"
	"j17/internal/store"
)

// Holder is what a package does that keeps data of streams beside their events.
type Holder interface {
	// Spaces lists where data of streams may stand, or have stood, for Purge.
	Spaces() []store.Declared
	// Erase removes what is kept of streams that were rewritten, on disk and in memory. Nobody gets to see it any more when it
	// returns. It can be repeated, and may be called for streams of which there is nothing.
	Erase(ctx context.Context, t j17.Tenant, e Erased) error
}

// Erased tells which streams were rewritten.
type Erased struct {
	// Keys are the streams, each once. There are not many at a time: the streams of a large tombstone come in several calls.
	Keys []j17.Key
	// Note is a position of the feed: the notes about all of these streams stand up to there.
	Note j17.StreamID
	// TombstoneID is the handle of the tombstone, At when its execution began.
	TombstoneID string
	At          time.Time
}
