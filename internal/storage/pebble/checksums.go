package pebble

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"

	"j17/internal/storage/store"
)

// scrubber is the store in the role of store.Scrubbing.
type scrubber struct{ *core }

// CheckTables reads tables from disk, past every cache of the engine, and compares their blocks with their checksums.
// See store.Scrubbing.
func (s *scrubber) CheckTables(ctx context.Context, after string, most int64) (store.TablesChecked, error) {
	var done store.TablesChecked
	names, sizes, err := s.tables()
	if err != nil {
		return done, err
	}
	for i, name := range names {
		if name <= after {
			continue
		}
		where := "the table " + tableFile(name)
		if done.Bytes >= most {
			done.More = true
			break
		}
		if err := cmp.Or(s.interrupted(ctx, 0), ctx.Err()); err != nil {
			return done, err
		}
		err := s.checkTable(ctx, name)
		switch {
		case ctx.Err() != nil:
			return done, ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			// It was replaced by another table, which comes later.
		case err == nil:
		case pebble.IsCorruptionError(err):
			done.Damaged = append(done.Damaged, &store.CorruptionError{Where: where, Err: legible{err}})
		case noDescriptors(err):
			return done, fault(where, err)
		default: // it cannot be read at all
			done.Damaged = append(done.Damaged, &store.CorruptionError{Where: where, Err: legible{err}})
		}
		done.Last, done.Tables, done.Bytes = name, done.Tables+1, done.Bytes+sizes[i]
	}
	return done, nil
}

// tables lists the files of the present tables in the order of their names, with their sizes.
func (s *scrubber) tables() (names []string, sizes []int64, err error) {
	v, err := s.acquire()
	if err != nil {
		return nil, nil, err
	}
	defer s.release(v)
	levels, err := s.db.SSTables()
	if err != nil {
		return nil, nil, fault("the list of tables", err)
	}
	bytes := map[string]int64{}
	for _, level := range levels {
		for i := range level {
			t := &level[i]
			name := fmt.Sprintf("%012d", uint64(t.BackingSSTNum)) // in the order of numbers, however many there are
			bytes[name] += int64(t.Size)
		}
	}
	for name := range bytes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		sizes = append(sizes, bytes[name])
	}
	return names, sizes, nil
}

// tableFile returns the file name of a table: its number, in six digits at least.
func tableFile(name string) string {
	number := strings.TrimLeft(name, "0")
	return strings.Repeat("0", max(0, 6-len(number))) + number + ".sst"
}

// checkTable compares the blocks of one table with their checksums.
func (s *scrubber) checkTable(ctx context.Context, name string) (err error) {
	// The store stays open meanwhile.
	v, err := s.acquire()
	if err != nil {
		return err
	}
	defer s.release(v)
	f, err := s.disk.FS.Open(s.disk.PathJoin(s.disk.dir, tableFile(name)))
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(ctx, readable, s.readForm)
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.ValidateBlockChecksums(); err != nil {
		return err
	}

	// The engine does not check the blocks with earlier values of keys.
	layout, err := r.Layout()
	if err != nil {
		return err
	}
	for _, h := range layout.ValueBlock {
		if err := checkBlock(ctx, readable, int64(h.Offset), int(h.Length)); err != nil {
			return err
		}
	}
	return nil
}

// blockTrailer is the length of what follows a block: its kind, and the CRC-32C of the block and its kind, masked as in
// LevelDB.
const blockTrailer = 1 + crc32.Size

// checkBlock compares a block of length bytes with the checksum after it.
func checkBlock(ctx context.Context, from objstorage.Readable, offset int64, length int) error {
	b := make([]byte, length+blockTrailer)
	if err := from.ReadAt(ctx, b, offset); err != nil {
		return err
	}
	sum := crc32.Checksum(b[:length+1], crc32.MakeTable(crc32.Castagnoli))
	const masked = 0xa282ead8
	if binary.LittleEndian.Uint32(b[length+1:]) != (sum>>15|sum<<17)+masked {
		return fmt.Errorf("%w: the checksum of the block at %d is wrong", pebble.ErrCorruption, offset)
	}
	return nil
}
