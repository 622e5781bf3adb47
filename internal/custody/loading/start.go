package loading

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/ident"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/custody/envlog"
	"j17/internal/storage/store"
)

// mostStarts is how many cold starts there may be at a time, each of another instance: one takes some 100 MiB of
// memory, beside what is remembered about aggregates and unique values, which is bounded for all files together.
const mostStarts = 2

// ColdStart fills a tenant that has no events with those of a file, which is read once: all of them, or none. If they
// have positions, these must ascend and are kept, and so are the bytes of the events: chains, roots and names are those
// of the file's origin, and chains in the file are checked. Otherwise events get new positions.
func (l *Loader) ColdStart(ctx context.Context, t j17.Tenant, in *command.FileReader) (Imported, error) {
	past, err := l.Engine.Recorder(t)
	if err != nil {
		return Imported{}, err
	}
	end, err := l.begin(t)
	if err != nil {
		return Imported{}, err
	}
	defer end()
	load, err := l.Store.Load(ctx, t)
	if err != nil {
		return Imported{}, startError(err)
	}
	defer load.Discard()

	// Everything is checked and prepared beside the store.
	c := &recorder{
		Loader: l, past: past, d: past.Decider(), r: &History{Tenant: t, Generation: in.Unsaid}, now: past.Now(),
		seed:    maphash.MakeSeed(),
		streams: map[uint64]pastStream{}, claimed: map[uint64]uint64{}, values: newExchanged(),
	}
	defer c.forget()
	defer c.unfollow()
	c.examine, c.finish = c.examineAny, c.canonical
	s := &start{recorder: c, load: load, log: envlog.NewFilling(load.Item), at: past.Position()}
	c.exchanged = s.exchange
	c.latest = s.at.Ms + aheadDays*secondsADay*1000
	if err = c.each(ctx, in, func(events []pastEvent) error { return s.add(ctx, events) }); errors.Is(err, errEnough) {
		err = nil
	}
	switch {
	case err != nil:
		return Imported{}, s.named(err)
	case len(c.faults) > 0:
		return Imported{}, c.refusal()
	case c.done.Events == 0:
		return Imported{}, j17.Errorf(j17.CodeInvalidJSON, "The file has no events. Nothing was stored.")
	}

	// Then the store takes it over.
	c.forget()
	if err := errors.Join(s.number(), s.log.End()); err != nil {
		return Imported{}, s.named(err)
	}
	if !past.Current() {
		return Imported{}, errRedeployed()
	}
	if err := past.Storing(
		func() error { return load.Commit(ctx, slices.Concat(past.Fences(), s.fences)...) },
	); err != nil {
		return Imported{}, s.refused(err)
	}
	past.Loaded(c.done.Events)
	for _, tell := range s.stored {
		tell()
	}
	if l.Loaded != nil {
		l.Loaded(t, int64(c.done.Events), s.bytes)
	}
	return Imported{Events: c.done.Events, Stored: c.done.Events, Imported: c.done.Events, Streams: len(c.streams)}, nil
}

// begin reserves a cold start, until end is called.
func (l *Loader) begin(t j17.Tenant) (end func(), err error) {
	instance, _, _ := strings.Cut(string(t), "/")
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.starts[instance]:
		return nil, j17.Errorf(j17.CodeBusy, "An environment of this instance is loaded for the first time at this moment. Try again when that has ended.")
	case len(l.starts) >= mostStarts:
		return nil, j17.Errorf(j17.CodeBusy, "Other environments are loaded for the first time at this moment. Try again when that has ended.")
	case l.starts == nil:
		l.starts = map[string]bool{}
	}
	l.starts[instance] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.starts, instance)
	}, nil
}

// start is a cold start.
type start struct {
	*recorder
	load store.Load
	// log is the log of the tenant.
	log *envlog.Filling
	// begun is set after the first event: kept then reports that events keep their positions, the last of which is
	// last, and array that the file is an array.
	begun, kept, array bool
	last               j17.StreamID
	// at is the position of the next event that has none in the file.
	at j17.StreamID
	// unnumbered are the aggregates that have no public id in the file and get one.
	unnumbered []j17.Key
	// bytes is the size of the events, without their positions and times.
	bytes int64
	// events are those of a batch; current is the one that is being added, and raw its bytes if it has no position in
	// the file.
	events  []decider.Event
	current j17.Event
	raw     []byte
	// stored are called after everything was stored, which requires that the fences hold; changed are called for a
	// fence that does not.
	stored  []func()
	fences  []store.Fence
	changed []func(*store.SideConflict)
}

// How far the times of a file may be ahead: positions of this server's clock, since that of another server, especially
// a development server, may have been moved; times of events of their positions, which were made at the same moment.
// Loaded events are never undone, and all later events must come after them.
const (
	aheadDays   = 366
	secondsADay = 24 * 60 * 60
)

// canonical makes the canonical bytes of an event that keeps its position.
func (c *recorder) canonical(text string, ev *pastEvent) error {
	switch {
	case ev.file.Leaf != nil && ev.file.Type != ident.WasTombstoned:
		return j17.Errorf(j17.CodeInvalidField, "'leaf' is that of an event that was erased; others have none").At("leaf")
	case !ev.positioned && ev.file.Chain != nil:
		return j17.Errorf(j17.CodeInvalidField, "'chain' is that of an event with its 'stream_id'; leave both out, or neither").At("chain")
	case !ev.positioned && ev.file.Leaf != nil:
		return j17.Errorf(j17.CodeInvalidField, "'leaf' is that of an event with its 'stream_id'; leave both out, or neither").At("leaf")
	case !ev.positioned && ev.Timestamp != nil && *ev.Timestamp > c.now:
		return j17.Errorf(j17.CodeInvalidField, "'timestamp' must be the time of the event in Unix seconds and not lie in the future").At("metadata.timestamp")
	case !ev.positioned:
		return nil
	case ev.Timestamp == nil:
		return j17.Errorf(j17.CodeMissingField, "Missing 'timestamp': an event with a 'stream_id' has happened at some time").At("metadata.timestamp")
	case ev.file.StreamID.Ms > c.latest:
		return j17.Errorf(j17.CodeInvalidField, "The position lies more than %d days ahead of this server's clock, and later ones come behind it. Set the clocks right, of this server or of where the file comes from", aheadDays).At("stream_id")
	case *ev.Timestamp > ev.file.StreamID.Ms/1000+secondsADay:
		return j17.Errorf(j17.CodeInvalidField, "'timestamp' lies more than a day after the moment of the event's position, %d in Unix seconds: time never runs backward, so that all later events would have it too", ev.file.StreamID.Ms/1000).At("metadata.timestamp")
	}

	// They are those of the file, if a server would write these. An event with another layout keeps the order of its
	// members.
	o := &ev.Events[0]
	typ, data, metadata := o.Kept()
	encode := func(data, metadata []byte) bool {
		size := len(text) + len(`{"stream_id":"","key":":","type":"","data":,"metadata":}`)
		ev.raw, ev.layout = j17.AppendEvent(
			make([]byte, 0, size), ev.file.StreamID, o.Key, typ, data, metadata, *ev.Timestamp,
		)
		n := len(ev.raw) - 1
		return len(text) > n && text[:n] == string(ev.raw[:n])
	}
	if !encode(data, metadata) && ev.file.Chain != nil {
		encode(ev.file.Data.OrNull().AppendJSON(nil), withoutTime(ev.file.Metadata))
	}
	return nil
}

// withoutTime encodes metadata in their order, without the time.
func withoutTime(metadata value.Value) []byte {
	var kept []value.Member
	for _, m := range metadata.Members() {
		if m.Key != "timestamp" {
			kept = append(kept, m)
		}
	}
	return value.ObjectValue(kept...).AppendJSON(nil)
}

// lineBits is how many bits of the store's number for an event are its line; the others are its number in the file.
const lineBits = 31

// add adds a batch of events.
func (s *start) add(ctx context.Context, events []pastEvent) error {
	s.events = s.events[:0]
	for i := range events {
		ev := &events[i]
		s.done.Events++
		s.array = ev.element
		if ev.fault == nil {
			ev.fault = s.position(ev)
		}
		if ev.fault != nil {
			if s.fault(ev, ev.fault) {
				return errEnough
			}
			continue
		}
		fresh, err := s.follow(ctx, ev, false)
		if err != nil {
			return err
		}
		if len(s.faults) == 0 {
			fault, err := s.recorder.exchange(ctx, ev, nil)
			if err != nil {
				return err
			}
			if fault != nil {
				s.fault(ev, fault)
			}
		}
		if len(s.faults) > 0 {
			if len(s.faults) >= maxErrors {
				return errEnough
			}
			continue // nothing of the file is stored
		}
		if err := s.event(ev, fresh); err != nil {
			return err
		}
		s.events = append(s.events, ev.Events...)
	}
	if len(s.faults) > 0 {
		return nil
	}

	// What is kept beside the events. The last value for an aggregate is valid.
	d, err := s.past.Derived(ctx, s.events)
	if err != nil {
		return err
	}
	s.stored = append(s.stored, d.Stored...)
	for i, f := range d.Fences { // each batch mostly has those of the previous one
		if !slices.Contains(s.fences, f) {
			s.fences, s.changed = append(s.fences, f), append(s.changed, d.Changed[i])
		}
	}
	return s.items(d.Sides)
}

// refused notifies the owner of a fence that does not hold, and returns the error for that; other errors are returned
// unchanged.
func (s *start) refused(err error) error {
	conflict, is := errors.AsType[*store.SideConflict](err)
	if !is || !slices.ContainsFunc(
		s.fences, func(f store.Fence) bool { return f.Space == conflict.Space && f.Key == conflict.Key },
	) {
		return s.named(err)
	}
	for _, changed := range s.changed {
		changed(conflict)
	}
	return j17.Errorf(j17.CodeConflict, "A rebuild of derived data, such as places, began while the file was read. Nothing was stored. Load it again.").Because(err)
}

// position checks that either all events have a position or none has.
func (s *start) position(ev *pastEvent) error {
	switch {
	case !s.begun:
		s.begun, s.kept = true, ev.positioned
	case s.kept && !ev.positioned:
		return j17.Errorf(j17.CodeMissingField, "Missing 'stream_id': the first event has one, so that all keep theirs. Give all events one, or none").At("stream_id")
	case !s.kept && ev.positioned:
		return j17.Errorf(j17.CodeInvalidField, "The event has a 'stream_id' and the first one has none. Give all events one, or none").At("stream_id")
	}
	if !s.kept {
		return nil
	}
	if ev.file.StreamID.Compare(s.last) <= 0 {
		return j17.Errorf(j17.CodeInvalidField, "The position does not come after that of the event before, %s: events that keep their positions stand in their order", s.last).At("stream_id")
	}
	s.last = ev.file.StreamID
	return nil
}

// unnumberedWeight is how many times as much memory an aggregate takes that gets a public id at the end.
const unnumberedWeight = 3

// event adds one event, and the names of its aggregate with its first one.
func (s *start) event(ev *pastEvent, fresh bool) error {
	o := &ev.Events[0]
	typ, data, metadata := o.Kept()
	e := &s.current // the store copies it
	*e = j17.Event{StreamID: ev.file.StreamID, Key: o.Key, Type: typ, Raw: ev.raw, Kept: ev.file.Leaf}
	if s.kept {
		e.Timestamp = *ev.Timestamp
	} else {
		e.StreamID, e.Timestamp = s.at, s.now
		if ev.Timestamp != nil {
			e.Timestamp = *ev.Timestamp
		}
		s.raw, ev.layout = j17.AppendEvent(s.raw[:0], e.StreamID, o.Key, typ, data, metadata, e.Timestamp)
		e.Raw = s.raw
		s.at = s.at.Next()
	}
	e.Data, e.Metadata = ev.layout.DataOf(e.Raw), ev.layout.MetadataOf(e.Raw)
	loaded := store.LoadedEvent{
		Event: e, Tags: o.TagsAt(e.Timestamp), Line: ev.index<<lineBits | min(ev.line, 1<<lineBits-1),
	}
	if e.Kept != nil {
		loaded.Tags = nil
	}
	if ev.file.Chain != nil {
		loaded.Chain = (*[32]byte)(ev.file.Chain)
	}
	s.bytes += int64(len(o.Key.Type) + len(o.Key.ID) + len(typ) + len(e.Data) + len(e.Metadata))
	leaf, err := s.load.Event(loaded)
	if err == nil {
		err = s.log.Add(e.StreamID, leaf)
	}
	if err != nil {
		return err
	}

	// The names of the aggregate.
	aggregate := s.d.Types[o.Key.Type]
	if !fresh || !decider.Named(aggregate) {
		return nil
	}
	if aggregate.Sequence && ev.file.PublicID == "" {
		s.unnumbered = append(s.unnumbered, o.Key)
		s.beside += unnumberedWeight
	}
	return s.items(s.past.Named(o.Key, ev.file.Names))
}

// exchange adds the items for the values that an aggregate exchanges.
func (s *start) exchange(ctx context.Context, key j17.Key, x *decider.Exchange, own *[32]byte) error {
	sides, err := s.past.Exchanged(ctx, key, x, own)
	if err != nil {
		return err
	}
	return s.items(sides)
}

// items adds side items, and withdraws deleted ones.
func (s *start) items(sides []store.Side) error {
	for i := range sides {
		w := &sides[i]
		if w.Op == store.Delete {
			if err := s.load.Withdraw(store.ItemName{Space: w.Space, Key: w.Key}, w.Entries); err != nil {
				return err
			}
			continue
		}
		item := store.ArchivedItem{
			Space: w.Space, Item: store.Item{Key: w.Key, Value: w.Value, Expires: w.Expires, Due: w.Due},
			Entries: w.Entries,
		}
		if err := s.load.Item(item); err != nil {
			return err
		}
	}
	return nil
}

// number gives public ids to the aggregates that have none in the file: they continue after the highest one in it.
func (s *start) number() error {
	for _, key := range s.unnumbered {
		s.highest++
		if err := s.items(s.past.Numbered(key, s.highest)); err != nil {
			return err
		}
	}
	if s.highest == 0 {
		return nil
	}
	return s.items([]store.Side{s.past.Counted(s.highest)})
}

// named adds the place of the event to an error of the store.
func (s *start) named(err error) error {
	at, ok := errors.AsType[*store.LoadError](err)
	if !ok {
		return startError(err)
	}
	why := j17.Errorf(j17.CodeInvalidField, "The event %s of %s does not fit those before it: %v", at.Position, at.Key, at.Err)
	s.faults = nil
	s.fault(&pastEvent{index: at.Line >> lineBits, line: at.Line & (1<<lineBits - 1), element: s.array}, why)
	return s.refusal()
}

// errRedeployed refuses a cold start that was checked against another spec.
func errRedeployed() error {
	return j17.Errorf(j17.CodeConflict, "Another spec was deployed while the file was read, and it is to be checked against that one. Nothing was stored. Load it again.")
}

// startError is the error of a cold start that the store refuses.
func startError(err error) error {
	if errors.Is(err, store.ErrNotEmpty) {
		return j17.Errorf(j17.CodeConflict, "The environment has events already. Only an empty one can be loaded for the first time; others take an import.")
	}
	if errors.Is(err, store.ErrOvertaken) {
		return j17.Errorf(j17.CodeConflict, "More of the environment (its files, or rows of projections) was changed again and again while it was filled than goes along. Nothing was stored. Load it again when no large files are uploaded and no builds are under way.")
	}
	if _, ok := errors.AsType[*store.SideConflict](err); ok {
		return errRedeployed() // all other fences are those of the deployed spec
	}
	return store.UserError(err)
}
