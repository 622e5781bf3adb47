package envlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"golang.org/x/mod/sumdb/tlog"

	"j17"
	"j17/internal/storage/store"
)

// The spaces of logs. The first three are derived from the events.
const (
	// tileSpace has the full tiles: level, '/', number, as hexadecimal digits. A value is the nodes of the tile's
	// lowest level.
	tileSpace store.Space = "envlog.tiles"
	// positionSpace has, under the position of the last event of each full tile of the lowest level, the tile's number
	// and the positions of all of its events.
	positionSpace store.Space = "envlog.positions"
	// headSpace has one item: how much of the log is in full tiles, and the nodes of the higher tiles that are not
	// full.
	headSpace store.Space = "envlog.head"
	// keySpace has one item: the public keys.
	keySpace store.Space = "envlog.keys"
	// KeySpace has the private keys, by the hashes of the public ones. It is left out of copies that others can read.
	KeySpace store.Space = "envlog.private"
	// anchorSpace has one item: the size of the head that was last anchored.
	anchorSpace store.Space = "envlog.anchored"
)

// headItem is the key of the item in spaces with a single one.
const headItem = "current"

// Each value begins with its version, and all except tiles, which the tree verifies, end with a checksum over key and
// value.
const (
	formatVersion = 1
	checksumBytes = crc32.Size
)

// sealed adds the version and the checksum to the value for a key.
func sealed(key string, value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, checksum(key, value))
}

// opened checks and removes the checksum and the version of a value.
func opened(key string, value []byte) ([]byte, error) {
	body := value[:max(len(value)-checksumBytes, 0)]
	if len(body) == 0 || binary.BigEndian.Uint32(value[len(body):]) != checksum(key, body) {
		return nil, errors.New("its checksum is wrong")
	}
	if body[0] != formatVersion {
		return nil, fmt.Errorf("its format %d is not known", body[0])
	}
	return body[1:], nil
}

func checksum(key string, value []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte(key), table), table, value)
}

func tileKey(level int, n uint64) string { return fmt.Sprintf("%02x/%012x", level, n) }

func positionKey(id j17.StreamID) string { return fmt.Sprintf("%013d-%010d", id.Ms, id.Seq) }

// errReplaced is the error of a log that another process has written.
var errReplaced = errors.New("envlog: the log was written by somebody else")

// store stores the full tiles that are not stored yet, and the new head.
func (l *log) store(ctx context.Context) error {
	if len(l.fresh) == 0 {
		return nil
	}

	stored, storedTo := l.stored, l.storedTo
	sides := make([]store.Side, 0, 2*len(l.fresh)+1)
	for i := range l.fresh {
		f := &l.fresh[i]
		sides = append(sides, f.sides()...)
		if f.level == 0 {
			stored, storedTo = f.n+1, f.at[len(f.at)-1]
		}
	}

	// The head makes them valid, on the condition that it is the one that they extend, of the same environment.
	extent, err := l.service.Store.Extent(ctx, l.tenant)
	if err != nil {
		return err
	}
	if extent.Life != l.life {
		l.loaded = false
		return errReplaced
	}
	head := store.Side{
		Op: store.Put, Space: headSpace, Key: headItem, Cond: store.IfAbsent,
		Value: sealed(headItem, l.appendHead(stored, storedTo)),
	}
	item, err := l.service.Store.Get(ctx, l.tenant, headSpace, headItem)
	switch {
	case err == nil:
		if before, _, _, err := parseHead(item.Value); err != nil || before != l.stored {
			l.loaded = false
			return errReplaced
		}
		head.Cond, head.Rev = store.IfRev, item.Rev
	case !errors.Is(err, store.ErrNotFound):
		return err
	case l.stored > 0:
		l.loaded = false
		return errReplaced
	}
	err = l.service.Store.Write(ctx, l.tenant, append(sides, head))
	if _, lost := errors.AsType[*store.SideConflict](err); lost {
		l.loaded = false
		return errReplaced
	}
	if err == nil {
		l.fresh, l.stored, l.storedTo = nil, stored, storedTo
	}
	return err
}

// sides are the items of a tile. A tile of the lowest level also has an item with positions.
func (f *freshTile) sides() []store.Side {
	sides := []store.Side{{Op: store.Put, Space: tileSpace, Key: tileKey(f.level, f.n), Value: f.nodes, Plain: true}}
	if f.level == 0 {
		key := positionKey(f.at[len(f.at)-1])
		sides = append(sides, store.Side{
			Op: store.Put, Space: positionSpace, Key: key, Value: sealed(key, appendPositions(f.n, f.at)), Plain: true,
		})
	}
	return sides
}

// appendHead returns the value of the head for a number of stored tiles that reach up to a position.
func (l *log) appendHead(stored uint64, to j17.StreamID) []byte {
	b := binary.AppendUvarint([]byte{formatVersion}, stored)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(to.Ms)), uint64(to.Seq))
	for level := 1; level < len(l.edges); level++ {
		for i := range l.edges[level] {
			b = append(b, l.edges[level][i][:]...)
		}
	}
	return b
}

// parseHead reads the value of a head: how many tiles of the lowest level are stored, the position up to which they
// reach, and the nodes of the higher tiles that are not full.
func parseHead(value []byte) (stored uint64, to j17.StreamID, edges [][]tlog.Hash, err error) {
	rest, err := opened(headItem, value)
	if err != nil {
		return 0, to, nil, err
	}
	var numbers [3]uint64
	for i := range numbers {
		n, width := binary.Uvarint(rest)
		if width <= 0 {
			return 0, to, nil, errForm
		}
		numbers[i], rest = n, rest[width:]
	}
	stored, to = numbers[0], j17.StreamID{Ms: int64(numbers[1]), Seq: uint32(numbers[2])}
	edges = [][]tlog.Hash{nil}
	for n := stored; n > 0; n >>= tileHeight {
		width := int(n % tileWidth)
		if len(rest) < width*tlog.HashSize {
			return 0, to, nil, errForm
		}
		edges = append(edges, appendNodes(make([]tlog.Hash, 0, tileWidth), rest[:width*tlog.HashSize]))
		rest = rest[width*tlog.HashSize:]
	}
	if len(rest) > 0 {
		return 0, to, nil, errForm
	}
	return stored, to, edges, nil
}

func appendNodes(dst []tlog.Hash, raw []byte) []tlog.Hash {
	for node := range slices.Chunk(raw, tlog.HashSize) {
		dst = append(dst, tlog.Hash(node))
	}
	return dst
}

// load reads the stored log.
func (l *log) load(ctx context.Context) error {
	l.loaded, l.size, l.last, l.edges, l.at, l.fresh, l.stored, l.storedTo = false, 0, j17.StreamID{}, nil, nil, nil, 0,
		j17.StreamID{}
	item, err := l.service.Store.Get(ctx, l.tenant, headSpace, headItem)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	default:
		stored, to, edges, err := parseHead(item.Value)
		if err != nil {
			return damage(l.tenant, "item %s of %s: %w", headItem, headSpace, err)
		}
		l.size, l.last, l.edges, l.stored, l.storedTo = stored*tileWidth, to, edges, stored, to
	}
	l.loaded = true
	return nil
}

// appendPositions returns the value with the positions of the events of tile n, each as the difference from the one
// before it.
func appendPositions(n uint64, at []j17.StreamID) []byte {
	b := binary.AppendUvarint([]byte{formatVersion}, n)
	var before j17.StreamID
	for _, id := range at {
		b = binary.AppendUvarint(b, uint64(id.Ms-before.Ms))
		if id.Ms == before.Ms {
			b = binary.AppendUvarint(b, uint64(id.Seq-before.Seq))
		} else {
			b = binary.AppendUvarint(b, uint64(id.Seq))
		}
		before = id
	}
	return b
}

// parsePositions reads an item of positionSpace.
func parsePositions(item *store.Item) (n uint64, at []j17.StreamID, err error) {
	rest, err := opened(item.Key, item.Value)
	if err != nil {
		return 0, nil, err
	}
	next := func() (n uint64) {
		n, width := binary.Uvarint(rest)
		if rest = rest[max(width, 0):]; width <= 0 && err == nil {
			err = errForm
		}
		return n
	}
	n, at = next(), make([]j17.StreamID, 0, tileWidth)
	var id j17.StreamID
	for range tileWidth {
		ms, seq := next(), next()
		if ms > 0 {
			id = j17.StreamID{Ms: id.Ms + int64(ms)}
		}
		id.Seq += uint32(seq)
		at = append(at, id)
	}
	if err == nil && (len(rest) > 0 || positionKey(id) != item.Key) {
		err = errForm
	}
	return n, at, err
}

var errForm = errors.New("it has not its form")

// place is the place of a position in the log: how many events there are up to it, and the position of the last of
// them.
type place struct {
	upTo uint64
	last j17.StreamID
}

// count adds the events of a list up to a position.
func (p *place) count(at []j17.StreamID, upTo j17.StreamID) {
	n, exact := slices.BinarySearchFunc(at, upTo, j17.StreamID.Compare)
	if exact {
		n++
	}
	if n > 0 {
		p.last = at[n-1]
	}
	p.upTo += uint64(n)
}

// find returns how many events there are up to a position.
func (l *log) find(ctx context.Context, upTo j17.StreamID) (p place, err error) {
	// After the stored tiles everything is in memory.
	if l.stored == 0 || upTo.Compare(l.storedTo) > 0 {
		p = place{upTo: l.stored * tileWidth, last: l.storedTo}
		for i := range l.fresh {
			p.count(l.fresh[i].at, upTo)
		}
		p.count(l.at, upTo)
		return p, nil
	}

	// Otherwise it is in the first tile whose last event is not before it.
	n, at, err := l.positions(ctx, store.Range{From: positionKey(upTo)})
	if err != nil {
		return p, err
	}
	p.upTo = n * tileWidth
	if n > 0 && upTo.Compare(at[0]) < 0 {
		prior, before, err := l.positions(ctx, store.Range{To: positionKey(upTo), Backward: true})
		if err == nil && prior != n-1 {
			err = damage(l.tenant, "the item of %s for tile %d is missing", positionSpace, n-1)
		}
		if err != nil {
			return p, err
		}
		p.last = before[len(before)-1]
	}
	p.count(at, upTo)
	return p, nil
}

// positions returns the first tile of a range, by its number, and the positions of its events.
func (l *log) positions(ctx context.Context, keys store.Range) (n uint64, at []j17.StreamID, err error) {
	items, err := l.service.Store.Scan(ctx, l.tenant, positionSpace, keys, 1)
	if err != nil {
		return 0, nil, err
	}
	if len(items) == 0 {
		return 0, nil, damage(l.tenant, "an item of %s is missing, from %q to %q", positionSpace, keys.From, keys.To)
	}
	if n, at, err = parsePositions(&items[0]); err == nil && n >= l.stored {
		err = errors.New("its tile does not count yet")
	}
	if err != nil {
		return 0, nil, damage(l.tenant, "item %s of %s: %w", items[0].Key, positionSpace, err)
	}
	return n, at, nil
}
