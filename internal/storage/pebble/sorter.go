package pebble

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

const (
	// maxRuns is the number of files of sorted records that are merged together.
	maxRuns = 64
	// runBuffer is the memory for reading or writing one of them.
	runBuffer = 64 << 10
	// maxSorted is larger than any key or value.
	maxSorted = store.MaxUnitBytes + 1<<20
	// placedBytes is the memory of a record apart from its key and value.
	placedBytes = 24
)

// workFolder is a folder for the files of one load.
type workFolder struct {
	fs   vfs.FS
	path string
	// check returns an error if there is no space for another file.
	check func() error

	mu   sync.Mutex
	made int
}

// create makes a new file.
func (w *workFolder) create(suffix string) (vfs.File, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.check(); err != nil {
		return nil, "", err
	}
	w.made++
	path := w.fs.PathJoin(w.path, strconv.Itoa(w.made)+suffix)
	f, err := w.fs.Create(path, vfs.WriteCategoryUnspecified)
	return f, path, err
}

// sorter sorts records by key in bounded memory: records that do not fit go into sorted files, which are merged when
// the records are read. Of records with the same key only the last one is kept.
type sorter struct {
	folder *workFolder
	// budget is the size at which one of the two buffers is sorted and written.
	budget  int
	filling *sortBuffer
	spare   *sortBuffer

	// writing counts the one goroutine that sorts and writes a buffer while the other one is filled.
	writing sync.WaitGroup
	// Changed only by that goroutine, or after waiting for it: runs has the files by how often their records were
	// merged, oldest first.
	runs [][]string
	err  error
}

func newSorter(folder *workFolder, budget int) *sorter {
	return &sorter{folder: folder, budget: budget, filling: &sortBuffer{}, spare: &sortBuffer{}}
}

// sortBuffer holds records in memory.
type sortBuffer struct {
	data   []byte
	placed []placedRecord
}

// placedRecord is the place of a record in a buffer, where its value follows its key. prefix is the part of the key
// after the bytes that all keys share, for quick comparison.
type placedRecord struct {
	prefix     uint64
	start      uint32
	key, value uint32
}

func (b *sortBuffer) keyOf(r *placedRecord) []byte { return b.data[r.start : r.start+r.key] }

func (b *sortBuffer) bytes() int { return len(b.data) + placedBytes*len(b.placed) }

// add adds a record, whose value is the concatenation of value.
func (s *sorter) add(key []byte, value ...[]byte) error {
	b := s.filling
	r := placedRecord{start: uint32(len(b.data)), key: uint32(len(key))}
	for _, part := range value {
		r.value += uint32(len(part))
	}

	// A buffer doubles when it grows, so that it is seldom copied.
	if need := int(r.key + r.value); cap(b.data)-len(b.data) < need {
		b.data = append(make([]byte, 0, len(b.data)+max(need, min(len(b.data), s.budget-len(b.data)))), b.data...)
	}
	b.data = append(b.data, key...)
	for _, part := range value {
		b.data = append(b.data, part...)
	}
	b.placed = append(b.placed, r)
	if b.bytes() < s.budget {
		return nil
	}

	// Write the buffer while the other one is filled.
	s.writing.Wait()
	if s.err != nil {
		return s.err
	}
	s.filling, s.spare = s.spare, b
	s.writing.Go(func() { s.err = panics.Caught(func() error { return s.spill(b) }) })
	return nil
}

// spill writes a buffer into a file and empties it. It merges files when there are maxRuns.
func (s *sorter) spill(b *sortBuffer) error {
	b.sort()
	path, err := s.write(&bufferSource{buffer: b})
	if err != nil {
		return err
	}
	b.data, b.placed = b.data[:0], b.placed[:0]
	if cap(b.data) > 2*s.budget {
		b.data = nil
	}
	for level := 0; ; level++ {
		if level == len(s.runs) {
			s.runs = append(s.runs, nil)
		}
		s.runs[level] = append(s.runs[level], path)
		if len(s.runs[level]) < maxRuns {
			return nil
		}
		if path, err = s.combine(s.runs[level]); err != nil {
			return err
		}
		s.runs[level] = nil
	}
}

// combine merges files into one.
func (s *sorter) combine(paths []string) (string, error) {
	m := &merger{}
	defer m.close()
	for _, path := range paths {
		if err := m.openRun(s.folder.fs, path); err != nil {
			return "", err
		}
	}
	path, err := s.write(m)
	m.close()
	for _, old := range paths {
		err = errors.Join(err, s.folder.fs.Remove(old))
	}
	return path, err
}

// write writes records into a new file.
func (s *sorter) write(from source) (path string, err error) {
	f, path, err := s.folder.create(".run")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, runBuffer)
	var header []byte
	for {
		key, value, err := from.next()
		if err != nil {
			return "", err
		}
		if key == nil {
			return path, w.Flush()
		}

		// Flush returns the error of any of these.
		header = binary.AppendUvarint(binary.AppendUvarint(header[:0], uint64(len(key))), uint64(len(value)))
		_, _ = w.Write(header)
		_, _ = w.Write(key)
		_, _ = w.Write(value)
	}
}

// settle ends adding and sorts the records still in memory.
func (s *sorter) settle() error {
	s.writing.Wait()
	s.spare = &sortBuffer{}
	s.filling.sort()
	return s.err
}

// each calls do for all records in the order of their keys. It can be called again. Key and value are valid until do
// returns.
func (s *sorter) each(ctx context.Context, do func(key, value []byte) error) error {
	return eachOf(ctx, do, s)
}

// eachOf is each for the records of several sorters, which must be settled.
func eachOf(ctx context.Context, do func(key, value []byte) error, sorters ...*sorter) error {
	m := &merger{}
	defer m.close()
	for _, s := range sorters {
		// Older records come first: those that were merged most often.
		for _, level := range slices.Backward(s.runs) {
			for _, path := range level {
				if err := m.openRun(s.folder.fs, path); err != nil {
					return err
				}
			}
		}
		if err := m.open(&bufferSource{buffer: s.filling}); err != nil {
			return err
		}
	}
	for n := 0; ; n++ {
		if n%cancelEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		key, value, err := m.next()
		if err != nil || key == nil {
			return err
		}
		if err := do(key, value); err != nil {
			return err
		}
	}
}

// sort sorts the records of a buffer, and keeps only the last one of those with the same key.
func (b *sortBuffer) sort() {
	if len(b.placed) == 0 {
		return
	}

	// Exclude the prefix that all keys share from comparisons.
	shared := b.keyOf(&b.placed[0])
	for i := range b.placed {
		key := b.keyOf(&b.placed[i])
		n := 0
		for n < len(shared) && n < len(key) && shared[n] == key[n] {
			n++
		}
		shared = shared[:n]
	}
	from := uint32(len(shared))
	for i := range b.placed {
		var prefix [8]byte
		copy(prefix[:], b.keyOf(&b.placed[i])[from:])
		b.placed[i].prefix = binary.BigEndian.Uint64(prefix[:])
	}

	slices.SortFunc(b.placed, func(x, y placedRecord) int {
		if x.prefix != y.prefix {
			return cmp.Compare(x.prefix, y.prefix)
		}
		return cmp.Or(
			bytes.Compare(b.data[x.start+from:x.start+x.key], b.data[y.start+from:y.start+y.key]),
			cmp.Compare(x.start, y.start),
		)
	})
	kept := b.placed[:0]
	for i := range b.placed {
		if i+1 < len(b.placed) && bytes.Equal(b.keyOf(&b.placed[i]), b.keyOf(&b.placed[i+1])) {
			continue
		}
		kept = append(kept, b.placed[i])
	}
	b.placed = kept
}

// source yields records in the order of their keys. A nil key is the end. The results of next are valid until it is
// called again.
type source interface {
	next() (key, value []byte, err error)
}

// bufferSource yields the records of a sorted buffer.
type bufferSource struct {
	buffer *sortBuffer
	at     int
}

func (s *bufferSource) next() (key, value []byte, err error) {
	if s.at == len(s.buffer.placed) {
		return nil, nil, nil
	}
	r := &s.buffer.placed[s.at]
	s.at++
	end := r.start + r.key
	return s.buffer.keyOf(r), s.buffer.data[end : end+r.value], nil
}

// runSource yields the records of a file.
type runSource struct {
	file   vfs.File
	from   *bufio.Reader
	record []byte
}

func (s *runSource) next() (key, value []byte, err error) {
	n, err := binary.ReadUvarint(s.from)
	if errors.Is(err, io.EOF) {
		return nil, nil, nil
	}
	m, err2 := binary.ReadUvarint(s.from)
	if err2 == nil && (n > maxSorted || m > maxSorted) {
		err2 = errFormat
	}
	if err = errors.Join(err, err2); err != nil {
		return nil, nil, fmt.Errorf("read sorted records: %w", err)
	}
	s.record = slices.Grow(s.record[:0], int(n+m))[:n+m]
	if _, err := io.ReadFull(s.from, s.record); err != nil {
		return nil, nil, fmt.Errorf("read sorted records: %w", err)
	}
	return s.record[:n], s.record[n:], nil
}

// merger merges sources, which are opened oldest first. Of records with the same key it yields the one of the youngest
// source.
type merger struct {
	// heads is a heap of the sources that have a record.
	heads []mergeHead
	files []vfs.File
	// last is the key of the record that was yielded last. begun reports that the first head was yielded and has to be
	// advanced.
	last  []byte
	begun bool
	n     int
}

type mergeHead struct {
	key, value []byte
	from       source
	age        int
}

// openRun adds a file.
func (m *merger) openRun(fs vfs.FS, path string) error {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	m.files = append(m.files, f)
	return m.open(&runSource{file: f, from: bufio.NewReaderSize(f, runBuffer)})
}

// open adds a source that is younger than those before it.
func (m *merger) open(from source) error {
	m.n++
	key, value, err := from.next()
	if err != nil || key == nil {
		return err
	}
	m.heads = append(m.heads, mergeHead{key, value, from, m.n})
	for i := len(m.heads) - 1; i > 0 && m.before(i, (i-1)/2); i = (i - 1) / 2 {
		m.heads[i], m.heads[(i-1)/2] = m.heads[(i-1)/2], m.heads[i]
	}
	return nil
}

// before reports whether one head is yielded before another: with equal keys the younger one is first.
func (m *merger) before(i, j int) bool {
	a, b := &m.heads[i], &m.heads[j]
	c := bytes.Compare(a.key, b.key)
	return c < 0 || c == 0 && a.age > b.age
}

func (m *merger) next() (key, value []byte, err error) {
	for {
		if m.begun {
			if err := m.advance(); err != nil {
				return nil, nil, err
			}
		}
		if len(m.heads) == 0 {
			return nil, nil, nil
		}
		head := &m.heads[0]
		if m.begun && bytes.Equal(head.key, m.last) {
			continue // a younger one was yielded
		}
		m.begun = true
		m.last = append(m.last[:0], head.key...)
		return head.key, head.value, nil
	}
}

// advance takes the next record of the first source.
func (m *merger) advance() (err error) {
	head := &m.heads[0]
	if head.key, head.value, err = head.from.next(); err != nil {
		return err
	}
	end := len(m.heads) - 1
	if head.key == nil {
		m.heads[0] = m.heads[end]
		m.heads = m.heads[:end]
		end--
	}
	for i := 0; ; {
		least := i
		for _, child := range [2]int{2*i + 1, 2*i + 2} {
			if child <= end && m.before(child, least) {
				least = child
			}
		}
		if least == i {
			return nil
		}
		m.heads[i], m.heads[least] = m.heads[least], m.heads[i]
		i = least
	}
}

// close closes the files.
func (m *merger) close() {
	for _, f := range m.files {
		_ = f.Close() // it was opened for reading only
	}
	m.files = nil
}
