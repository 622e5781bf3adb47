package envlog

import (
	"context"
	"errors"

	"golang.org/x/mod/sumdb/tlog"

	"j17/internal/custody/proof"
	"j17/internal/storage/store"
)

// tree reads the tree of a log during a turn. What it reads from the store is verified against the tiles in memory,
// which determine the root: a changed tile is an error that names it.
type tree struct {
	ctx    context.Context //nolint:containedctx // tlog's readers know none, and it lives as long as one question
	log    *log
	reader tlog.HashReader
	// whole is the root of the tree.
	whole tlog.Hash
	// tiles and data are those of the last read.
	tiles []tlog.Tile
	data  [][]byte
}

// tree returns the tree of the log as it is now.
func (l *log) tree(ctx context.Context) (*tree, error) {
	root, err := tlog.TreeHash(int64(l.size), tlog.HashReaderFunc(l.readEdges))
	r := &tree{ctx: ctx, log: l, whole: root}
	r.reader = tlog.TileHashReader(tlog.Tree{N: int64(l.size), Hash: root}, r)
	return r, err
}

// readEdges reads nodes from the tiles that are not full.
func (l *log) readEdges(nodes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(nodes))
	for i, node := range nodes {
		tile := tlog.TileForIndex(tileHeight, node)
		h, err := tlog.HashFromTile(tile, l.edge(tile), node)
		if err != nil {
			return nil, err
		}
		hashes[i] = h
	}
	return hashes, nil
}

// edge returns the nodes of a tile that is not full, up to the tile's width.
func (l *log) edge(tile tlog.Tile) []byte {
	if tile.L >= len(l.edges) {
		return nil
	}
	var raw []byte
	for _, node := range l.edges[tile.L][:min(tile.W, len(l.edges[tile.L]))] {
		raw = append(raw, node[:]...)
	}
	return raw
}

// Height implements tlog.TileReader.
func (r *tree) Height() int { return tileHeight }

// SaveTiles implements tlog.TileReader: all of them are stored.
func (r *tree) SaveTiles([]tlog.Tile, [][]byte) {}

// ReadTiles implements tlog.TileReader.
func (r *tree) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	r.tiles, r.data = tiles, make([][]byte, len(tiles))
	for i, tile := range tiles {
		raw, err := r.tile(tile)
		if err != nil {
			return nil, err
		}
		r.data[i] = raw
	}
	return r.data, nil
}

// tile returns the nodes of a tile.
func (r *tree) tile(tile tlog.Tile) ([]byte, error) {
	// Tiles that are not full, or not stored yet, are in memory.
	l := r.log
	if uint64(tile.N) >= l.size>>(tileHeight*(tile.L+1)) {
		return l.edge(tile), nil
	}
	for i := range l.fresh {
		if f := &l.fresh[i]; f.level == tile.L && f.n == uint64(tile.N) {
			return f.nodes[:tile.W*tlog.HashSize], nil
		}
	}

	key := tileKey(tile.L, uint64(tile.N))
	item, err := l.service.Store.Get(r.ctx, l.tenant, tileSpace, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, damage(l.tenant, "item %s of %s is missing", key, tileSpace)
	}
	if err == nil && len(item.Value) != tileBytes {
		err = damage(l.tenant, "item %s of %s has %d bytes in the place of %d", key, tileSpace, len(item.Value), tileBytes)
	}
	if err != nil {
		return nil, err
	}
	return item.Value[:tile.W*tlog.HashSize], nil
}

// read reads nodes, all of which are verified against the root of the tree.
func (r *tree) read(nodes []int64) ([]tlog.Hash, error) {
	hashes, err := r.reader.ReadHashes(nodes)
	if err == nil {
		return hashes, nil
	}

	// Find the tile that does not match the one above it.
	at := map[tlog.Tile]int{}
	for i, tile := range r.tiles {
		at[tlog.Tile{L: tile.L, N: tile.N}] = i
	}
	for i, tile := range r.tiles {
		above, ok := at[tlog.Tile{L: tile.L + 1, N: tile.N >> tileHeight}]
		from := int(tile.N%tileWidth) * tlog.HashSize
		if !ok || len(r.data[i]) != tileBytes || len(r.data[above]) < from+tlog.HashSize {
			continue
		}
		if rootOf(appendNodes(nil, r.data[i])) != tlog.Hash(r.data[above][from:from+tlog.HashSize]) {
			return nil, damage(r.log.tenant, "item %s of %s is not what the tile above it says", tileKey(tile.L, uint64(tile.N)), tileSpace)
		}
	}
	return nil, err
}

// answer calls ask twice with a reader of nodes: first to find out which ones it needs, which are then all read at
// once.
func (r *tree) answer(ask func(tlog.HashReader) error) error {
	var needed []int64
	if err := ask(tlog.HashReaderFunc(func(nodes []int64) ([]tlog.Hash, error) {
		needed = append(needed, nodes...)
		return make([]tlog.Hash, len(nodes)), nil
	})); err != nil || len(needed) == 0 {
		return err
	}
	hashes, err := r.read(needed)
	if err != nil {
		return err
	}
	return ask(tlog.HashReaderFunc(func(nodes []int64) ([]tlog.Hash, error) {
		read := hashes[:len(nodes):len(nodes)] // requested in the same order
		hashes = hashes[len(nodes):]
		return read, nil
	}))
}

// root returns the root of the tree of size leaves.
func (r *tree) root(size uint64) (root [tlog.HashSize]byte, err error) {
	if size == r.log.size {
		return r.whole, nil
	}
	err = r.answer(func(nodes tlog.HashReader) (err error) {
		root, err = tlog.TreeHash(int64(size), nodes)
		return err
	})
	return root, err
}

// sized returns the requested size, or for nil that of the current tree.
func (r *tree) sized(size *uint64) uint64 {
	if size == nil {
		return r.log.size
	}
	return *size
}

// include proves that the leaf at an index is in the tree of size leaves.
func (r *tree) include(index uint64, size *uint64) (p Inclusion, err error) {
	p = Inclusion{Index: index, Size: r.sized(size)}
	if index >= p.Size || p.Size > r.log.size {
		return p, ErrBeyond
	}
	err = r.answer(func(nodes tlog.HashReader) error {
		path, err := tlog.ProveRecord(int64(p.Size), int64(index), nodes)
		if err != nil {
			return err
		}
		leaf, err := nodes.ReadHashes([]int64{tlog.StoredHashIndex(0, int64(index))})
		if err != nil {
			return err
		}
		p.Proof, p.Leaf = proof.Hashes(path), leaf[0]
		p.Root, err = tlog.TreeHash(int64(p.Size), nodes)
		return err
	})
	return p, err
}

// extend proves that the tree of size to begins with that of size from.
func (r *tree) extend(from uint64, to *uint64) (p Consistency, err error) {
	p = Consistency{From: from, To: r.sized(to)}
	if from == 0 || from > p.To || p.To > r.log.size {
		return p, ErrBeyond
	}
	err = r.answer(func(nodes tlog.HashReader) error {
		path, err := tlog.ProveTree(int64(p.To), int64(from), nodes)
		if err != nil {
			return err
		}
		p.Proof = proof.Hashes(path)
		if p.FromRoot, err = tlog.TreeHash(int64(from), nodes); err == nil {
			p.ToRoot, err = tlog.TreeHash(int64(p.To), nodes)
		}
		return err
	})
	return p, err
}
