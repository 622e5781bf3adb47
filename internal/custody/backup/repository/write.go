package repository

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/storage/store"
)

// Head describes a backup to be made.
type Head struct {
	ID        string
	Scope     Scope
	Kind      Kind
	Parent    string
	CreatedAt time.Time
	// Program is the version of the program that makes it.
	Program string
	Seal    Seal
}

// leastPackers and mostPackers bound how many parts are compressed and stored at a time; waiting is how many more wait
// for that.
const (
	leastPackers = 2
	mostPackers  = 4
	waiting      = 2
)

// packers is how many parts are compressed and stored at a time: one for each processor.
func packers() int { return min(max(runtime.GOMAXPROCS(0), leastPackers), mostPackers) }

// Writer makes a backup. What it stores is unused until Finish has written the manifest; if that does not happen, the
// next backup reuses it, or Collect removes it.
type Writer struct {
	repository *Repository
	ctx        context.Context //nolint:containedctx // lives as long as the backup
	cancel     context.CancelCauseFunc
	seal       Seal
	marker     *marker
	manifest   Manifest
	tenants    []*TenantWriter

	jobs    chan job
	free    chan []byte
	workers sync.WaitGroup
	ended   bool

	// mu guards known, the names of the parts that exist or are being stored, and checked, those that this backup has
	// checked or stored.
	mu             sync.Mutex
	known, checked map[string]bool
	parts, bytes   atomic.Int64
	// listed is how many parts the manifest will have. It belongs to the goroutine that writes tenants.
	listed int
}

// job is a content to be stored as a part. of is notified when that is done or abandoned.
type job struct {
	content []byte
	part    *Part
	of      *sync.WaitGroup
}

// NewBackup begins a backup. The context is that of the whole backup: when it ends, nothing more is stored. It waits
// while a collection runs.
func (r *Repository) NewBackup(ctx context.Context, h Head) (_ *Writer, err error) {
	if !plainName(h.ID) {
		return nil, fmt.Errorf("%q cannot be the name of a backup", h.ID)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &Writer{
		repository: r, ctx: ctx, cancel: cancel, seal: h.Seal, jobs: make(chan job, waiting),
		free:  make(chan []byte, mostPackers+waiting+1),
		known: map[string]bool{}, checked: map[string]bool{},
		manifest: Manifest{
			Format: Format, ID: h.ID, Scope: h.Scope, Kind: h.Kind, Parent: h.Parent, Program: h.Program,
			CreatedAt: h.CreatedAt.UTC(), Recipients: h.Seal.Recipients(),
		},
	}
	defer func() {
		if err != nil {
			w.Abort()
		}
	}()

	// No collection runs from here on, so the existing parts stay.
	if w.marker, err = r.mark(ctx, h.ID); err != nil {
		return nil, err
	}
	for f, err := range r.storage.List(ctx, parts) {
		if err != nil {
			return nil, describe(r.storage, parts, "listed", err)
		}
		if name := f.Name[strings.LastIndexByte(f.Name, '/')+1:]; len(name) == 2*sha256.Size {
			w.known[name] = true
		}
	}
	if h.Seal.Encrypted() {
		if w.manifest.SealedNames, err = h.Seal.encrypt(h.Seal.names); err != nil {
			return nil, err
		}
	}
	for range packers() {
		with, err := h.Seal.packer()
		if err != nil {
			return nil, err
		}
		w.workers.Go(func() { w.work(with) })
	}
	return w, nil
}

// work stores jobs until there are no more.
func (w *Writer) work(with *packer) {
	for j := range w.jobs {
		if w.ctx.Err() == nil {
			if err := panics.Caught(func() error { return w.store(with, j) }); err != nil {
				w.cancel(err)
			}
		}
		j.of.Done()
		if cap(j.content) > 2*partBytes {
			continue // unusually large, so not reused
		}
		select {
		case w.free <- j.content[:0]:
		default:
		}
	}
}

// store stores a part, unless it exists.
func (w *Writer) store(with *packer, j job) error {
	if err := w.marker.refresh(w.ctx); err != nil {
		return err
	}

	// The name shows whether it exists. The first job with a name stores the part.
	name := nameOf(w.seal.names, j.content)
	j.part.Name, j.part.Bytes = name, int64(len(j.content))
	w.mu.Lock()
	there, checked := w.known[name], w.checked[name]
	w.known[name], w.checked[name] = true, true
	w.mu.Unlock()
	if there && (checked || w.manifest.Kind != Full || w.same(j.content, name)) {
		return nil
	}

	file, err := with.pack(j.content)
	if err != nil {
		return err
	}
	if err := w.repository.storage.Put(w.ctx, partFile(name), file); err != nil {
		return describe(w.repository.storage, partFile(name), "stored", err)
	}
	w.parts.Add(1)
	w.bytes.Add(int64(len(file)))
	return nil
}

// same reports whether a part that was stored before still has the content. It returns false if that cannot be checked,
// or checking costs more than storing it again.
func (w *Writer) same(content []byte, name string) bool {
	if w.seal.Encrypted() || !w.repository.storage.Cheap() {
		return false
	}
	file, err := w.repository.storage.Get(w.ctx, partFile(name), maxFile)
	if err != nil {
		return false
	}
	decoder, err := newDecoder()
	if err != nil {
		return false
	}
	defer decoder.Close()
	stored, err := Identities{}.unpack(decoder, file, false, int64(len(content)))
	return err == nil && bytes.Equal(stored, content)
}

// Stored returns how many parts were stored so far, and their size in bytes. It can be called at any time.
func (w *Writer) Stored() (parts, bytes int64) { return w.parts.Load(), w.bytes.Load() }

// failed returns why the backup cannot continue, nil if it can.
func (w *Writer) failed() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return nil
}

// list counts a part of the manifest.
func (w *Writer) list() error {
	if w.listed++; w.listed > mostParts {
		return errParts
	}
	return nil
}

// Tenant begins the next tenant of the backup. The previous one has to be closed.
func (w *Writer) Tenant(h TenantHead) *TenantWriter {
	t := &TenantWriter{w: w, head: h}
	w.tenants = append(w.tenants, t)
	return t
}

// Finish waits for all parts and writes the manifest, which completes the backup.
func (w *Writer) Finish(completedAt time.Time) (Manifest, error) {
	if w.ended {
		return Manifest{}, errors.New("the backup has ended")
	}
	defer w.Abort()
	w.drain()
	if err := w.failed(); err != nil {
		return Manifest{}, err
	}

	m := &w.manifest
	m.CompletedAt, m.Bytes = completedAt.UTC(), w.bytes.Load()
	for _, t := range w.tenants {
		if !t.closed {
			return Manifest{}, fmt.Errorf("the backup of %s is not whole", t.head.Tenant)
		}
		m.Tenants = append(m.Tenants, t.manifest())
	}
	slices.SortStableFunc(m.Tenants, func(a, b TenantManifest) int {
		switch {
		case a.Tenant == b.Tenant:
			return 0
		case a.Tenant == j17.System:
			return -1
		case b.Tenant == j17.System:
			return 1
		}
		return strings.Compare(string(a.Tenant), string(b.Tenant))
	})

	// The parts must survive a loss of power before the manifest does.
	text, err := m.encode()
	if err == nil && (len(text) > maxManifest || elements(text) > mostElements) {
		err = errParts
	}
	if err != nil {
		return Manifest{}, err
	}
	s, name := w.repository.storage, manifestFile(m.ID)
	if err := s.Sync(w.ctx); err != nil {
		return Manifest{}, describe(s, parts, "stored", err)
	}
	if err = s.Put(w.ctx, name, text); err == nil {
		err = s.Sync(w.ctx)
	}
	if err != nil {
		err = describe(s, name, "stored", err)
		if !w.withdraw(name) {
			err = fmt.Errorf("%w; %w", err, ErrDoubt)
		}
		return Manifest{}, err
	}
	return *m, nil
}

// withdraw removes a manifest that may exist although its backup has failed, and reports whether it is certainly gone:
// otherwise it would stay forever, since no list has it.
func (w *Writer) withdraw(name string) bool {
	ctx, stop := context.WithTimeout(context.WithoutCancel(w.ctx), removeWait)
	defer stop()
	s := w.repository.storage
	return s.Delete(ctx, name) == nil && s.Sync(ctx) == nil
}

// drain ends the work in the background.
func (w *Writer) drain() {
	if !w.ended {
		w.ended = true
		close(w.jobs)
		w.workers.Wait()
	}
}

// Abort ends the backup and allows collections. After Finish it does nothing.
func (w *Writer) Abort() {
	w.cancel(context.Canceled)
	w.drain()
	w.marker.remove(context.WithoutCancel(w.ctx))
}

// TenantWriter takes the data of a tenant: kept segments, events and notes in the order of the feed, then items in the
// order of their spaces and keys, then commands in that of their ids. It is not safe for concurrent use.
type TenantWriter struct {
	w    *Writer
	head TenantHead
	// feed, items and commands are the parts; those in segments are pointers, since their names become known later.
	feed            []*Segment
	items, commands []*Part
	bounds          []j17.StreamID
	// content is the data since the last part, all of one kind; segment describes it if it is of the feed.
	content []byte
	filling filling
	segment Segment
	last    j17.StreamID
	events  uint64
	closed  bool
	// storing waits for the parts that are being stored.
	storing sync.WaitGroup
}

// filling is the kind of a content.
type filling int

const (
	ofFeed filling = iota
	ofItems
	ofCommands
)

// Bounds cuts the feed where these segments end, so that unchanged data gives the same parts.
func (t *TenantWriter) Bounds(previous []Segment) {
	t.bounds = nil
	for _, s := range previous {
		t.bounds = append(t.bounds, s.Last)
	}
}

// Keep adds a segment of an earlier backup with the same seal. If its part no longer exists it is ErrMissing, and the
// section has to be read.
func (t *TenantWriter) Keep(s Segment) error {
	if err := t.Cut(); err != nil {
		return err
	}
	t.w.mu.Lock()
	there := t.w.known[s.Name]
	t.w.mu.Unlock()
	if !there {
		return ErrMissing
	}
	if err := t.w.list(); err != nil {
		return err
	}
	if s.First.Compare(t.last) <= 0 {
		return fmt.Errorf("the segment from %s on does not follow %s", s.First, t.last)
	}
	t.feed = append(t.feed, &s)
	t.last = s.Last
	t.events += s.Events
	return nil
}

// Event adds the next event of the feed, with the tags that do not follow from its metadata.
func (t *TenantWriter) Event(e *j17.Event, tags []string) error {
	if err := t.enter(e.StreamID); err != nil {
		return err
	}
	var err error
	t.content, err = appendEvent(t.content, e, tags)
	if err != nil {
		return err
	}
	t.segment.Events++
	return t.full()
}

// Note adds the next note of the feed.
func (t *TenantWriter) Note(n store.Note) error {
	if err := t.enter(n.Position); err != nil {
		return err
	}
	var err error
	if t.content, err = appendNote(t.content, &n); err != nil {
		return err
	}
	return t.full()
}

// enter prepares the content for an entry of the feed.
func (t *TenantWriter) enter(at j17.StreamID) error {
	if at.Compare(t.last) <= 0 || t.filling != ofFeed {
		return fmt.Errorf("%s does not follow %s in the feed of %s", at, t.last, t.head.Tenant)
	}
	for len(t.bounds) > 0 && at.Compare(t.bounds[0]) > 0 {
		t.bounds = t.bounds[1:]
		if err := t.Cut(); err != nil {
			return err
		}
	}
	if len(t.content) == 0 {
		t.begin()
		t.segment = Segment{First: at}
	}
	t.segment.Last, t.last = at, at
	return nil
}

// begin takes a free buffer.
func (t *TenantWriter) begin() {
	if t.content == nil {
		select {
		case t.content = <-t.w.free:
		default:
			t.content = make([]byte, 0, smallPart)
		}
	}
}

func (t *TenantWriter) full() error {
	if len(t.content) < partBytes {
		// A content that grows is moved once, to a buffer for a whole part.
		if len(t.content) > smallPart/2 && cap(t.content) < partBytes {
			t.content = slices.Grow(t.content, partBytes+smallPart-len(t.content))
		}
		return nil
	}
	return t.Cut()
}

// Cut ends the segment, or the part, that is being filled.
func (t *TenantWriter) Cut() error {
	if err := t.w.failed(); err != nil {
		return err
	}
	if len(t.content) == 0 {
		return nil
	}
	if err := t.w.list(); err != nil {
		return err
	}
	part := new(Part)
	switch t.filling {
	case ofFeed:
		s := t.segment
		t.feed = append(t.feed, &s)
		t.events += s.Events
		part = &s.Part
	case ofItems:
		t.items = append(t.items, part)
	case ofCommands:
		t.commands = append(t.commands, part)
	}
	t.storing.Add(1)
	select {
	case t.w.jobs <- job{t.content, part, &t.storing}:
	case <-t.w.ctx.Done():
		t.storing.Done()
		return t.w.failed()
	}
	t.content = nil
	return nil
}

// fill ends a content of another kind.
func (t *TenantWriter) fill(with filling) error {
	if t.filling > with {
		return errors.New("the feed comes first, then items, then commands")
	}
	if t.filling != with {
		if err := t.Cut(); err != nil {
			return err
		}
		t.filling = with
	}
	t.begin()
	return nil
}

// Item adds the next side item.
func (t *TenantWriter) Item(i store.ArchivedItem) error {
	if err := t.fill(ofItems); err != nil {
		return err
	}
	before := len(t.content)
	var err error
	if t.content, err = appendItem(t.content, &i); err != nil {
		return err
	}
	return t.cutByContent(len(t.content)-before, string(i.Space), i.Key)
}

// Command adds the next command.
func (t *TenantWriter) Command(c store.ArchivedCommand) error {
	if err := t.fill(ofCommands); err != nil {
		return err
	}
	before := len(t.content)
	var err error
	if t.content, err = appendCommand(t.content, &c); err != nil {
		return err
	}
	return t.cutByContent(len(t.content)-before, "", hex.EncodeToString(c.ID[:]))
}

// cutByContent ends a part after an entry with this name and length, if it is one of those that end parts. That depends
// on nothing else, so that the parts after a change are the same as in the previous backup.
func (t *TenantWriter) cutByContent(length int, space, key string) error {
	h := crc32.Checksum([]byte(space+"\x00"+key), crc32.MakeTable(crc32.Castagnoli))
	if h%itemPartBytes < uint32(min(length, itemPartBytes)) || len(t.content) >= partBytes {
		return t.Cut()
	}
	return nil
}

// Drop discards the tenant, so that it can be begun again, and returns the segments so far: they are stored.
func (t *TenantWriter) Drop() ([]Segment, error) {
	if err := t.Cut(); err != nil {
		return nil, err
	}
	t.storing.Wait()
	if err := t.w.failed(); err != nil {
		return nil, err
	}
	t.w.listed -= len(t.feed) + len(t.items) + len(t.commands)
	t.w.tenants = slices.DeleteFunc(t.w.tenants, func(other *TenantWriter) bool { return other == t })
	return t.manifest().Feed, nil
}

// Close ends the tenant, and checks that all its events were added.
func (t *TenantWriter) Close() error {
	if err := t.Cut(); err != nil {
		return err
	}
	if t.events != t.head.Size || t.last.Compare(t.head.Moment) > 0 || t.head.Position.Compare(t.last) > 0 {
		return fmt.Errorf("%d events of %s up to %s were read, and there are %d up to %s", t.events, t.head.Tenant, t.last, t.head.Size, t.head.Position)
	}
	t.closed = true
	return nil
}

// manifest is called when all parts are stored.
func (t *TenantWriter) manifest() TenantManifest {
	m := TenantManifest{TenantHead: t.head}
	for _, s := range t.feed {
		m.Feed = append(m.Feed, *s)
	}
	for _, p := range t.items {
		m.Items = append(m.Items, *p)
	}
	for _, p := range t.commands {
		m.Commands = append(m.Commands, *p)
	}
	return m
}

// Resume returns how many of a parent's segments are kept by an incremental backup with fresh new events. The small
// ones at the end are read again and merged with the new events, so that frequent backups do not leave many small
// parts; at each step at most as much is read again as is new.
func Resume(parent []Segment, fresh uint64) (kept int) {
	kept = len(parent)
	for kept > 0 && fresh > 0 {
		s := &parent[kept-1]
		if s.Events > fresh || s.Bytes >= partBytes {
			break
		}
		fresh += s.Events
		kept--
	}
	return kept
}
