package envlog

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"j17"
	"j17/internal/storage/store"
)

// tileHeight is how many levels of a tree a tile has, tileWidth how many nodes its lowest one has.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
	tileBytes  = tileWidth * tlog.HashSize
)

// readAtOnce is how many events are read in the background before it is another log's turn.
const readAtOnce = 1 << 15

// mostFresh is how many tiles are kept in memory before they are stored, mostUnstored how many if they cannot be
// stored.
const (
	mostFresh    = 64
	mostUnstored = 512
)

// log is what is known about the log of one environment. It belongs to the goroutine that has its turn.
type log struct {
	service *Service
	tenant  j17.Tenant
	turn    chan struct{}
	// users is how many callers have it or wait for it, used the round of its last use. Both are guarded by Service.mu.
	users int
	used  uint64

	// loaded reports that the following fields are valid, life of which environment they are (store.Extent).
	loaded bool
	life   uint64
	// size is how many events it has, last the position of the last one.
	size uint64
	last j17.StreamID
	// edges has, from the lowest level of tiles on, the nodes of the last tile, which is not full.
	edges [][]tlog.Hash
	// at has the positions of the events of edges[0].
	at []j17.StreamID
	// fresh are the full tiles that are not stored yet, in the order in which they became full; stored is how many of
	// the lowest level are stored, and storedTo the position of the last event in those.
	fresh    []freshTile
	stored   uint64
	storedTo j17.StreamID
}

// freshTile is a full tile: number n of its level.
type freshTile struct {
	level int
	n     uint64
	nodes []byte
	// at has the positions of the events of a tile of the lowest level.
	at []j17.StreamID
}

// extent returns the extent of the environment's events. If the log in memory is of another one, it is loaded again:
// the environment was removed and rebuilt, or it had no events and was filled together with its log.
func (l *log) extent(ctx context.Context) (store.Extent, error) {
	extent, err := l.service.Store.Extent(ctx, l.tenant)
	if err != nil || l.loaded && l.life == extent.Life {
		return extent, err
	}
	l.life = extent.Life
	return extent, l.load(ctx)
}

// catchUp reads the events that the feed had when it was called.
func (l *log) catchUp(ctx context.Context) error {
	extent, err := l.extent(ctx)
	if err != nil {
		return err
	}
	if extent.Events < l.size {
		return damage(l.tenant, "it has %d events, the feed has %d", l.size, extent.Events)
	}
	for l.size < extent.Events {
		before := l.size
		if err := l.read(ctx, int(extent.Events-l.size)); err != nil {
			return err
		}
		if l.size == before {
			return damage(l.tenant, "the feed ends after %d of %d events", l.size, extent.Events)
		}
	}
	return nil
}

// read reads up to limit events from the feed.
func (l *log) read(ctx context.Context, limit int) error {
	for leaf, err := range l.service.Store.ReadLeaves(ctx, l.tenant, l.last, limit) {
		if err != nil {
			return err
		}
		l.add(leaf.Position, leaf.Hash)

		// While nothing can be written, requests are answered from memory.
		if n := len(l.fresh); n >= mostFresh && len(l.at) == 0 {
			if err := l.store(ctx); err != nil && (n >= mostUnstored || errors.Is(err, errReplaced)) {
				return err
			}
		}
	}
	return nil
}

// add adds the leaf of the event at a position, which is greater than all before.
func (l *log) add(at j17.StreamID, leaf tlog.Hash) {
	l.at = append(l.at, at)
	l.size, l.last = l.size+1, at
	for level := 0; ; level++ {
		if level == len(l.edges) {
			l.edges = append(l.edges, nil)
		}
		l.edges[level] = append(l.edges[level], leaf)
		if len(l.edges[level]) < tileWidth {
			return
		}

		// The tile is full: its root is a node of the next level.
		full := freshTile{level: level, n: l.size>>(tileHeight*(level+1)) - 1, nodes: make([]byte, 0, tileBytes)}
		for i := range l.edges[level] {
			full.nodes = append(full.nodes, l.edges[level][i][:]...)
		}
		if level == 0 {
			full.at, l.at = l.at, nil
		}
		leaf = rootOf(slices.Clone(l.edges[level]))
		l.edges[level] = l.edges[level][:0]
		l.fresh = append(l.fresh, full)
	}
}

// rootOf returns the root of a full tile, whose nodes it overwrites.
func rootOf(nodes []tlog.Hash) tlog.Hash {
	for n := len(nodes); n > 1; n /= 2 {
		for i := range n / 2 {
			nodes[i] = tlog.NodeHash(nodes[2*i], nodes[2*i+1])
		}
	}
	return nodes[0]
}
