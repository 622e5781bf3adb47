package pebble

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	markName = "mark"
	// slotBytes is the size of each of the two slots in the file. They are written in turn, so that one is always
	// intact.
	slotBytes = 4096
	// slotHeader is the size of a slot's header: the length and the checksum of the text.
	slotHeader = 8
	// markedFiles is the most files that a mark lists. The youngest logs are the ones that matter.
	markedFiles = 32
	// markEvery is about how long the mark may lag behind acknowledged writes in the log.
	markEvery = 250 * time.Millisecond
)

// mark is compared with the folder when the store is opened.
type mark struct {
	// Serial grows with each mark.
	Serial uint64 `json:"serial"`
	// Clean reports that the store was closed with everything in tables. Tenants, Events and Last describe what it
	// held.
	Clean   bool   `json:"clean"`
	Tenants int    `json:"tenants"`
	Events  uint64 `json:"events"`
	Last    string `json:"last"`
	// Seen is the latest time that was accepted, in Unix milliseconds.
	Seen int64 `json:"seen"`
	// Files are the logs that hold acknowledged writes, and the manifests, which list the other files that do.
	Files []markedFile `json:"files"`
}

// markedFile records that the first Length bytes of a file were synced, and their CRC-32C.
type markedFile struct {
	Name   string `json:"name"`
	Length uint64 `json:"length"`
	Sum    uint32 `json:"sum"`
}

// isMarked reports whether a file is of a kind that marks list.
func isMarked(name string) bool {
	return strings.HasSuffix(name, logSuffix) || strings.HasPrefix(name, manifestPrefix)
}

// marks keeps the mark of a store that is open.
type marks struct {
	fs     vfs.FS
	path   string
	join   func(elem ...string) string
	dir    string
	logger *slog.Logger
	table  *crc32.Table
	// dirty is signalled when the mark is out of date.
	dirty chan struct{}

	// writing is held while a mark is written, and locked before mu, so that recording a sync does not wait for the
	// write.
	writing sync.Mutex
	file    vfs.File
	failed  bool

	mu  sync.Mutex
	now mark
	// finished reports that logs hold nothing any longer.
	finished bool
	files    map[string]*markedFile
}

func newMarks(d *disk) *marks {
	return &marks{
		fs: d.FS, path: d.PathJoin(d.dir, markName), logger: d.logger, table: crc32.MakeTable(crc32.Castagnoli),
		join: d.PathJoin, dir: d.dir, dirty: make(chan struct{}, 1), files: map[string]*markedFile{},
	}
}

// open reads the mark, compares its files with it, and opens the file for later marks.
func (m *marks) open() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.read(); err != nil {
		return err
	}
	for _, f := range m.now.Files {
		err := m.compare(&f)
		if err == nil {
			err = m.checkEnd(f.Name)
		}
		if err != nil {
			return m.lost(err)
		}
		m.files[f.Name] = &f
	}
	f, err := m.fs.OpenReadWrite(m.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("open %s: %w", m.path, err)
	}
	m.file = f
	// Allocate the space of both slots.
	size, err := f.Stat()
	if err == nil && size.Size() < 2*slotBytes {
		_, err = f.WriteAt(make([]byte, 2*slotBytes), 0)
	}
	if err != nil {
		return fmt.Errorf("prepare %s: %w", m.path, err)
	}
	return nil
}

// lost is the error for acknowledged writes that are missing, with what to do about them.
func (m *marks) lost(err error) error {
	return fmt.Errorf("%w. Events that were acknowledged are missing: restore the folder from a backup; or, to go on with what is left, "+
		"remove the file %s and start again", err, m.path)
}

// read finds the last mark, if there is one.
func (m *marks) read() error {
	f, err := m.fs.Open(m.path)
	if err != nil {
		if _, missing := m.fs.Stat(m.path); missing == nil {
			return fmt.Errorf("open %s: %w", m.path, err)
		}
		return nil // there is no mark
	}
	all, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", m.path, err)
	}
	whole, written := 0, 0
	for from := 0; from+slotBytes <= len(all); from += slotBytes {
		slot := all[from : from+slotBytes]
		found, ok := m.parse(slot)
		if ok {
			whole++
		}
		if ok && found.Serial > m.now.Serial {
			m.now = found
		}
		if len(bytes.Trim(slot, "\x00")) > 0 {
			written++
		}
	}
	if whole == 0 && written > 1 {
		return fmt.Errorf("%s is damaged: check the disk, and whether the folder is complete; to start without comparing, remove that file", m.path)
	}
	return nil
}

func (m *marks) parse(slot []byte) (found mark, ok bool) {
	n := binary.BigEndian.Uint32(slot)
	if n == 0 || n > slotBytes-slotHeader {
		return mark{}, false
	}
	text := slot[slotHeader : slotHeader+n]
	if crc32.Checksum(text, m.table) != binary.BigEndian.Uint32(slot[4:]) {
		return mark{}, false
	}
	return found, json.Unmarshal(text, &found) == nil
}

// compare checks that the synced part of a file is there as it was written.
func (m *marks) compare(want *markedFile) error {
	path := m.join(m.dir, want.Name)
	f, err := m.fs.Open(path)
	if err != nil {
		if _, missing := m.fs.Stat(path); missing != nil {
			if strings.HasPrefix(want.Name, manifestPrefix) {
				// Its entry in the folder may never have been durable; the engine notices if the one it needs is
				// missing.
				return nil
			}
			return fmt.Errorf("the file %s is missing", path)
		}
		return fmt.Errorf("open %s: %w", path, err)
	}
	sum := crc32.New(m.table)
	n, err := io.Copy(sum, io.LimitReader(f, int64(want.Length)))
	err = errors.Join(err, f.Close())
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", path, err)
	case uint64(n) != want.Length:
		return fmt.Errorf("the file %s has %d bytes and should have at least %d", path, n, want.Length)
	case sum.Sum32() != want.Sum:
		return fmt.Errorf("the file %s is damaged within its first %d bytes", path, want.Length)
	default:
		return nil
	}
}

// checkEnd checks the rest of a log, which the mark does not cover, for damage that cannot be a write that was cut
// short.
func (m *marks) checkEnd(name string) error {
	number, ok := logNumber(name)
	if !ok {
		return nil
	}
	path := m.join(m.dir, name)
	f, err := m.fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	at, err := damagedAt(f, uint32(number), m.table)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if at >= 0 {
		return fmt.Errorf("the file %s is damaged at byte %d, and the bytes behind it were written later", path, at)
	}
	return nil
}

// checkTotals compares what the store has loaded with what it held when it was closed.
func (m *marks) checkTotals(got mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if want := &m.now; want.Clean && (got.Tenants < want.Tenants || got.Events < want.Events || got.Last < want.Last) {
		return m.lost(fmt.Errorf("%d events of %d environments up to %s are left of %d events of %d environments up to %s",
			got.Events, got.Tenants, got.Last, want.Events, want.Tenants, want.Last))
	}
	return nil
}

// seen returns the latest time that was accepted, in Unix milliseconds.
func (m *marks) seen() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.Seen
}

// see records an accepted time. It is stored with the next mark.
func (m *marks) see(ms int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Seen = ms
}

// synced records how much of a file is durable. For a file that is not tracked yet it writes the mark before it
// returns.
func (m *marks) synced(f markedFile) {
	if !m.note(f) {
		_ = m.write() // it has reported what went wrong
		return
	}
	select {
	case m.dirty <- struct{}{}:
	default:
	}
}

// begin cancels the record of a clean stop before the first write to a log: from then on the store may hold less than
// the record says.
func (m *marks) begin(f string) {
	m.mu.Lock()
	first := m.now.Clean && !m.finished && strings.HasSuffix(f, logSuffix)
	m.now.Clean = m.now.Clean && !first
	m.mu.Unlock()
	if first {
		m.renew()
	}
}

// note records what was synced. It reports whether the mark may be written later.
func (m *marks) note(f markedFile) (later bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.finished && strings.HasSuffix(f.Name, logSuffix) {
		return true
	}
	later = m.files[f.Name] != nil
	m.files[f.Name] = &f
	return later
}

// drop removes a file from the mark, so that the file may be removed. After an error the mark still names it.
func (m *marks) drop(name string) error {
	m.mu.Lock()
	f := m.files[name]
	delete(m.files, name)
	m.mu.Unlock()
	if f == nil {
		return nil
	}
	err := m.write()
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.files[name] = f
	}
	return err
}

// renew brings the mark up to date.
func (m *marks) renew() { _ = m.write() } // it has reported what went wrong

// finish writes the mark of a store whose logs hold nothing any longer. No later mark names a log.
func (m *marks) finish(totals mark) {
	m.mu.Lock()
	for name := range m.files {
		if strings.HasSuffix(name, logSuffix) {
			delete(m.files, name)
		}
	}
	m.finished = true
	m.now.Clean, m.now.Tenants, m.now.Events, m.now.Last = true, totals.Tenants, totals.Events, totals.Last
	m.mu.Unlock()
	m.renew()
}

// report logs when marks can no longer be written. Writes to the store go on: only the detection of damage suffers. The
// caller holds writing.
func (m *marks) report(err error) {
	if err != nil && !m.failed {
		m.logger.Warn("the mark beside the log cannot be written, a start would not notice everything that is missing",
			slog.String("file", m.path), slog.Any("error", err))
	}
	m.failed = err != nil
}

// write makes a mark of the present state durable, and logs errors.
func (m *marks) write() (err error) {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.file == nil {
		return nil
	}
	defer func() { m.report(err) }()
	next := m.next()
	text, err := json.Marshal(&next)
	if err != nil {
		return err
	}
	slot := make([]byte, slotHeader, slotBytes)
	binary.BigEndian.PutUint32(slot, uint32(len(text)))
	binary.BigEndian.PutUint32(slot[4:], crc32.Checksum(text, m.table))
	slot = append(slot, text...)[:slotBytes]
	if _, err := m.file.WriteAt(slot, int64(next.Serial%2)*slotBytes); err != nil {
		return err
	}
	return m.file.SyncData()
}

// next returns the mark of the present state.
func (m *marks) next() mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now.Serial++
	m.now.Files = nil
	for _, f := range m.files {
		m.now.Files = append(m.now.Files, *f)
	}
	// Sort manifests, which have longer names, before logs, and both by descending number: longer numbers are greater.
	slices.SortFunc(m.now.Files, func(a, b markedFile) int {
		return cmp.Or(cmp.Compare(len(b.Name), len(a.Name)), strings.Compare(b.Name, a.Name))
	})
	m.now.Files = m.now.Files[:min(len(m.now.Files), markedFiles)]
	return m.now
}

// close closes the file.
func (m *marks) close() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	m.file = nil
	return err
}

// trackedFile is a file that keeps the length and the checksum of what was written to it.
type trackedFile struct {
	vfs.File
	marks *marks

	mu      sync.Mutex
	written markedFile
}

// Write appends p.
func (f *trackedFile) Write(p []byte) (int, error) {
	f.marks.begin(f.written.Name)
	f.mu.Lock()
	// The file may change p, as the file system of tests does on purpose, so take the checksum before.
	sum := crc32.Update(f.written.Sum, f.marks.table, p)
	f.mu.Unlock()
	n, err := f.File.Write(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	if n < len(p) {
		sum = crc32.Update(f.written.Sum, f.marks.table, p[:n])
	}
	f.written.Length += uint64(n)
	f.written.Sum = sum
	return n, err
}

// Sync makes the file durable.
func (f *trackedFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData makes the file's data durable.
func (f *trackedFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *trackedFile) sync(how func() error) error {
	f.mu.Lock()
	written := f.written
	f.mu.Unlock()
	err := how()
	if err == nil && written.Length > 0 {
		f.marks.synced(written)
	}
	return err
}

// markLoop writes the mark soon after it is out of date.
func (s *Store) markLoop() {
	for {
		select {
		case <-s.disk.marks.dirty:
		case <-s.life.Done():
			return
		}
		if s.clock.Wait(s.life, s.clock.Now().Add(markEvery)) != nil {
			return
		}
		if !s.disk.failed.Load() {
			s.disk.marks.renew()
		}
	}
}

// totals counts what the store holds.
func (s *core) totals() mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	var m mark
	for _, t := range s.tenants {
		if t.number != 0 {
			m.Tenants++
			m.Events += t.next.Events
			m.Last = max(m.Last, t.last.String())
		}
	}
	return m
}

// settle writes everything to tables and records that in the mark, so that no log matters any longer. If that fails,
// the next start has the logs. It returns false if end was closed first, while Pebble is still writing. Unless the
// store has failed, Pebble has received the request when settle returns, since it must not receive it after it is
// closed.
func (s *Store) settle(end <-chan struct{}) bool {
	if s.disk.failed.Load() || s.disk.short.Load() {
		return true
	}

	// Request it. That begins a new log, for which the disk may block.
	failing := s.events.failing()
	asked := make(chan request, 1)
	go func() {
		done, err := s.db.AsyncFlush()
		asked <- request{done, err}
	}()
	var flush request
	select {
	case flush = <-asked:
	case <-s.queue.Faulted():
		return true
	case <-end:
		return false
	}
	if flush.err != nil {
		return true
	}

	// Wait for it while it makes progress.
	select {
	case <-flush.done:
		if !s.disk.failed.Load() {
			s.disk.marks.finish(s.totals())
		}
	case <-failing:
	case <-s.queue.Faulted():
	case <-end:
		return false
	}
	return true
}

// request is Pebble's answer to a request to write its memory to tables: a channel that is closed when that is done.
type request struct {
	done <-chan struct{}
	err  error
}
