// Package send writes the events of a file to an environment as events that happen now, in batches and side by side. A
// run that was stopped goes on where it was, and stores no event twice.
package send

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"j17"
	"j17/internal/edge/client"
)

// Options is how events are sent. Client, Concurrency and Note are required.
type Options struct {
	Client *client.Client
	// Title is what messages call the input.
	Title string
	// Name distinguishes this input from others with the same content, "" if there are none.
	Name string
	// Journals are the places where the progress of a file may be kept, see JournalNames. They do not matter for a
	// stream.
	Journals []string
	// Batch is how many consecutive events of an aggregate are sent at once; 0 means 500, for a stream 1.
	Batch int
	// Concurrency is how many requests are under way at once.
	Concurrency int
	// Refuse, if not nil, is called with each event that is refused and left out, one at a time; its error ends the
	// run. Without it the run stops at the first one.
	Refuse func(Refused) error
	// Note shows a person something that is not part of the result.
	Note func(format string, args ...any)
	// Begin, if not nil, is called before the first event is sent, with the number of events, -1 where that is not
	// known, and Advance, if not nil, with how many more of them are done.
	Begin, Advance func(events int)
}

// Refused is an event that was left out, with the reason.
type Refused struct {
	Line    int             `json:"line"`
	Code    j17.Code        `json:"code,omitempty"`
	Path    string          `json:"path,omitempty"`
	Message string          `json:"message"`
	Event   json.RawMessage `json:"event,omitempty"`
	// Text is what stands in the line where it is no JSON.
	Text string `json:"text,omitempty"`
}

// Summary counts events by what became of them.
type Summary struct {
	// Events is how many the input has, as far as it was read.
	Events int
	// Stored were stored by this run, Known by one before; Refused were left out.
	Stored, Known, Refused int
}

// StoppedError is the error of a run that has begun to send and has not come to its end.
type StoppedError struct {
	Err error
	// Next is a sentence about how to go on.
	Next string
}

// Error returns the reason.
func (e *StoppedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *StoppedError) Unwrap() error { return e.Err }

const (
	defaultBatch = 500
	// maxBatchBytes keeps batches well below what the server accepts.
	maxBatchBytes = 4 << 20
	// mostListed is how many faults are listed.
	mostListed = 20
)

// sender is one run.
type sender struct {
	o       Options
	journal *journal // nil for a stream
	// stop is closed once nothing more shall be sent.
	stop chan struct{}

	mu      sync.Mutex
	failure error // the first one
	Summary
}

// batch is events of one aggregate that go together: the same actor and target, one after the other.
type batch []event

func (b batch) span() span { return span{b[0].index, b[len(b)-1].index + 1} }

// File sends the events of a file, which it reads twice: first to see whether all of it can be sent and to derive the
// run's name, then to send it. The error is a *StoppedError from the first request on. Without Refuse, a file with
// faults is not sent at all.
func File(ctx context.Context, file io.ReadSeeker, o Options) (_ Summary, err error) {
	s := &sender{o: o, stop: make(chan struct{})}
	source, faults, err := s.check(ctx, file)
	if err != nil {
		o.Note("Nothing was sent.\n")
		return Summary{}, err
	}
	s.tellIgnored(source)
	if faults > 0 && o.Refuse == nil {
		return Summary{}, invalid("%s cannot be sent: %s. Nothing was sent.", o.Title, wrong(faults))
	}

	head := journalHead{
		Target: o.Client.URL(), Seed: hex.EncodeToString(source.seed[:]), Events: source.index, Batch: o.Batch,
	}
	if head.Batch == 0 {
		head.Batch = defaultBatch
	}
	if s.journal, err = openJournal(o.Journals, head); err != nil {
		return Summary{}, err
	}
	if s.journal.resumed {
		s.resume(head)
	}
	if _, err = file.Seek(0, io.SeekStart); err == nil {
		err = s.run(ctx, newSource(file, o.Name), source.index)
	}
	return s.Summary, errors.Join(err, s.journal.close(err == nil && s.Refused == 0))
}

// Stream sends the events that in has. Its progress is kept by the server alone, in idempotency keys. The error is a
// *StoppedError.
func Stream(ctx context.Context, in io.Reader, o Options) (Summary, error) {
	s := &sender{o: o, stop: make(chan struct{})}
	source := newSource(in, o.Name)
	err := s.run(ctx, source, -1)
	s.tellIgnored(source)
	return s.Summary, err
}

// tellIgnored notes which members of the input were ignored because only a server writes them.
func (s *sender) tellIgnored(in *source) {
	if len(in.ignored) > 0 {
		s.o.Note("Not taken over from the file: %s. Events get the present time and positions of their own.\n", strings.Join(in.ignored, ", "))
	}
}

// resume notes where the run goes on.
func (s *sender) resume(now journalHead) {
	kept, before := s.journal.head, 0
	for _, done := range s.journal.done {
		before += done.To - done.From
	}
	s.o.Note("Resuming from %s: the last run stored %d of %d events.\n", s.journal.name, before, kept.Events)
	if kept.Seed != now.Seed {
		s.o.Note("The file has changed since. What was stored stays as it is.\n")
	}
	if s.o.Batch != 0 && s.o.Batch != kept.Batch {
		s.o.Note("Batches go on to have up to %d events.\n", kept.Batch)
	}
}

// check reads a whole file and lists what cannot be read as an event.
func (s *sender) check(ctx context.Context, file io.Reader) (*source, int, error) {
	in, faults := newSource(file, s.o.Name), 0
	for {
		_, err := in.next()
		if errors.Is(err, io.EOF) {
			return in, faults, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		bad, ok := errors.AsType[*lineError](err)
		switch {
		case err == nil:
		case !ok:
			return nil, 0, s.unread(ctx, err)
		case bad.fatal:
			return nil, 0, s.unread(ctx, bad)
		default:
			if faults++; s.o.Refuse == nil {
				s.list(faults, bad)
			}
		}
	}
}

// unread is the error of an input that cannot be read to its end.
func (s *sender) unread(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if bad, ok := errors.AsType[*lineError](err); ok {
		return faultyEvent{invalid("%s:%s", s.o.Title, bad.Error()), bad.line}
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		err = path.Err // the title has the name
	}
	return fmt.Errorf("cannot read %s: %w", s.o.Title, err)
}

// list notes the n-th fault.
func (s *sender) list(n int, bad *lineError) {
	switch {
	case n <= mostListed:
		s.o.Note("%s:%s\n", s.o.Title, bad.Error())
	case n == mostListed+1:
		s.o.Note("More faults are not listed.\n")
	}
}

// invalid is the error of events that are not valid.
func invalid(format string, args ...any) error {
	return j17.Errorf(j17.CodeSchemaViolation, format, args...)
}

func wrong(n int) string {
	if n == 1 {
		return "1 event is wrong"
	}
	return fmt.Sprintf("%d events are wrong", n)
}

// batchSize is how many events a batch may have: one for a stream unless the options say otherwise, since the sender of
// a stream may end early, and an unfinished batch with it.
func (s *sender) batchSize() int {
	switch {
	case s.journal != nil:
		return s.journal.head.Batch
	case s.o.Batch > 0:
		return s.o.Batch
	default:
		return 1
	}
}

// run sends the events of a source, total of them, -1 where that is not known.
func (s *sender) run(ctx context.Context, in *source, total int) error {
	if s.o.Begin != nil {
		s.o.Begin(total)
	}

	// Each queue has a worker that sends its batches one after the other.
	queues := make([]chan batch, s.o.Concurrency)
	var workers sync.WaitGroup
	for i := range queues {
		queues[i] = make(chan batch, 4)
		workers.Go(func() {
			for b := range queues[i] {
				if s.stopped() {
					continue
				}
				if err := s.process(ctx, b); err != nil {
					s.fail(err)
				}
			}
		})
	}
	err := s.read(ctx, in, queues)

	// What is under way is finished.
	for _, q := range queues {
		close(q)
	}
	workers.Wait()
	if s.failure != nil {
		err = s.failure
	}
	s.Events = in.index
	if err != nil {
		return &StoppedError{err, s.next(err)}
	}
	return nil
}

// next says how to go on after an error has stopped a run.
func (s *sender) next(err error) string {
	faulty, ok := errors.AsType[faultyEvent](err)
	switch {
	case ok && s.journal == nil:
		return fmt.Sprintf("Correct line %d, and send the whole input again with the same command within 24 hours: no event is stored twice.", faulty.line)
	case ok:
		return fmt.Sprintf("Correct line %d of %s and run the same command again: it goes on from there, and no event is stored twice.", faulty.line, s.o.Title)
	case s.journal == nil:
		return "Run the same command on the same input again within 24 hours: no event is stored twice."
	default:
		return "Run the same command again to go on from there; no event is stored twice."
	}
}

func (s *sender) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// fail stops sending; requests under way are finished.
func (s *sender) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
		close(s.stop)
	}
}

// read cuts the source into batches. All batches of one aggregate go into one queue, which keeps their order.
func (s *sender) read(ctx context.Context, in *source, queues []chan batch) error {
	most, size := s.batchSize(), 0
	var b batch
	flush := func() error {
		if len(b) == 0 {
			return nil
		}
		h := fnv.New32a()
		_, _ = io.WriteString(h, b[0].key.String()) // never fails
		full := b
		b, size = nil, 0
		select {
		case queues[h.Sum32()%uint32(len(queues))] <- full:
			return nil
		case <-s.stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	for !s.stopped() && ctx.Err() == nil {
		ev, err := in.next()
		if errors.Is(err, io.EOF) {
			return flush()
		}
		if bad, ok := errors.AsType[*lineError](err); ok && !bad.fatal && s.o.Refuse != nil {
			err = errors.Join(flush(), s.refuse(*bad, ""))
			if err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return errors.Join(flush(), s.unread(ctx, err))
		}

		// A batch ends where it is full, or the next event belongs to another one.
		if len(b) > 0 && (len(b) >= most || size+len(ev.data) > maxBatchBytes || !ev.joins(&b[0])) {
			if err := flush(); err != nil {
				return err
			}
		}
		b, size = append(b, ev), size+len(ev.data)
	}
	return ctx.Err()
}

// process sends a batch, without what is stored already.
func (s *sender) process(ctx context.Context, b batch) error {
	if s.journal == nil {
		return s.send(ctx, b)
	}
	if at, ok := s.journal.cuts[b.span()]; ok {
		return s.parts(ctx, b, at)
	}

	// What an earlier run has stored may stand in the middle.
	var pending []batch
	for i, gap := 0, true; i < len(b); i++ {
		if s.journal.done.has(b[i].index) {
			gap = true
			continue
		}
		if gap {
			pending = append(pending, nil)
			gap = false
		}
		pending[len(pending)-1] = append(pending[len(pending)-1], b[i])
	}
	sent := 0
	for _, p := range pending {
		sent += len(p)
	}
	s.count(0, len(b)-sent)
	if sent == len(b) {
		return s.send(ctx, b)
	}

	for _, p := range pending {
		if err := s.process(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// parts processes a batch in parts that end before the events with the indexes at.
func (s *sender) parts(ctx context.Context, b batch, at []int) error {
	for _, i := range append(at, b[len(b)-1].index+1) {
		n := i - b[0].index
		if n < 1 || n > len(b) {
			continue
		}
		if err := s.process(ctx, b[:n]); err != nil {
			return err
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
	return nil
}

// send sends a batch as one request.
func (s *sender) send(ctx context.Context, b batch) error {
	events := make([]client.NewEvent, len(b))
	for i, ev := range b {
		events[i] = client.NewEvent{Type: ev.eventType, Data: ev.data}
	}
	o := client.WriteOptions{
		Actor: b[0].Actor, PreviousLength: b[0].PreviousLength, SkipOCC: b[0].SkipOCC,
		IdempotencyKey: s.idempotencyKey(b),
	}
	if b[0].Target != (j17.Agent{}) {
		o.Target = &b[0].Target
	}
	receipt, err := s.o.Client.PostBatch(ctx, b[0].key, events, o)
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Problem.Code == j17.CodeIdempotencyErased {
		receipt.Replayed, err = true, nil // it was stored, and is to stay erased
	}
	if err != nil {
		if refused, ok := errors.AsType[*client.Error](err); s.journal != nil &&
			(!ok || refused.Status >= http.StatusInternalServerError) {
			s.journal.need() // what has become of the request is not known
		}
		return s.failed(ctx, b, err)
	}

	if s.journal != nil {
		if err := s.journal.stored(b.span()); err != nil {
			return err
		}
	}
	if receipt.Replayed {
		s.count(0, len(b))
	} else {
		s.count(len(b), 0)
	}
	return nil
}

// idempotencyKey is made of the input, the place in it, and the events. It stays the same from version to version of
// the program, and so does how it begins: the server may know it from before an update.
func (s *sender) idempotencyKey(b batch) string {
	h := sha256.New()
	if s.journal != nil {
		_, _ = io.WriteString(h, s.journal.head.Seed) // never fails
	} else {
		h.Write(b[len(b)-1].seed[:])
	}
	_, _ = fmt.Fprintf(h, "\n%d %d %q %q %q\n", b[0].index, len(b), b[0].key.String(), b[0].Actor, b[0].Target)
	if b[0].PreviousLength != nil {
		_, _ = fmt.Fprintf(h, "length %d\n", *b[0].PreviousLength)
	}
	if b[0].SkipOCC {
		_, _ = io.WriteString(h, "skip_occ\n")
	}
	for _, ev := range b {
		_, _ = fmt.Fprintf(h, "%q %d\n%s\n", ev.eventType, len(ev.data), ev.data)
	}
	return "import-" + hex.EncodeToString(h.Sum(nil)[:20])
}

// failed decides what a failed request means for the run.
func (s *sender) failed(ctx context.Context, b batch, err error) error {
	e, ok := errors.AsType[*client.Error](err)
	expects := ok && e.Problem.Code == j17.CodeConflict && b[0].PreviousLength != nil
	if !ok || !expects && !AboutEvents(e.Problem.Code) {
		return err
	}
	at, found := 0, e.Problem.EventIndex != nil || expects
	if e.Problem.EventIndex != nil {
		at = *e.Problem.EventIndex
		found = at >= 0 && at < len(b)
	}

	// A batch that is too large is halved. One with a refused event goes without that one, if it may.
	var cuts []int
	switch {
	case len(b) > 1 && e.Problem.Code == j17.CodePayloadTooLarge && !found:
		cuts = []int{b[len(b)/2].index}
	case len(b) > 1 && found && s.o.Refuse != nil:
		cuts = []int{b[at].index, b[at].index + 1}
	}
	if cuts != nil {
		if s.journal != nil {
			if err := s.journal.cut(b.span(), cuts); err != nil {
				return err
			}
		}
		return s.parts(ctx, b, cuts)
	}

	// Nothing can be cut off any more: these are the events at fault.
	if found {
		b = b[at : at+1]
	}
	if s.o.Refuse == nil {
		bad := faultAt(b[0], e)
		s.list(1, &bad)
		code := j17.CodeSchemaViolation
		if expects {
			code = j17.CodeConflict
		}
		return faultyEvent{j17.Errorf(code, "stopped at line %d of %s, which the server refuses (%s)", bad.line, s.o.Title, e.Problem.Code), bad.line}
	}
	for _, ev := range b {
		if err := s.refuse(faultAt(ev, e), e.Problem.Code); err != nil {
			return err
		}
	}
	return nil
}

// faultAt is what the server says about an event.
func faultAt(ev event, e *client.Error) lineError {
	bad := lineError{index: ev.index, line: ev.line, path: e.Problem.Path, message: e.Problem.Message, raw: ev.raw}
	for _, f := range e.Problem.Errors {
		if !strings.Contains(bad.message, f.Message) { // of one finding it may be in there
			bad.message += " " + f.Message
		}
	}
	return bad
}

// AboutEvents reports whether a refusal is about the events sent, so that others may be accepted.
func AboutEvents(code j17.Code) bool {
	//nolint:exhaustive // all other codes are about the request, the key or the server
	switch code {
	case j17.CodeInvalidJSON, j17.CodeMissingField, j17.CodeUnknownField, j17.CodeInvalidField, j17.CodeUndeclaredType,
		j17.CodeReservedEventType, j17.CodeSchemaViolation, j17.CodeForbidden, j17.CodeUnknownType,
		j17.CodeUnknownEventType,
		j17.CodePayloadTooLarge, j17.CodeInvalidIdentifier, j17.CodeSkipOCCNotAllowed:
		return true
	default:
		return false
	}
}

// refuse leaves an event out.
func (s *sender) refuse(bad lineError, code j17.Code) error {
	row := Refused{Line: bad.line, Code: code, Path: bad.path, Message: bad.message}
	if json.Valid(bad.raw) {
		row.Event = bad.raw
	} else {
		row.Text = string(bad.raw)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.o.Refuse(row); err != nil {
		return err
	}
	s.Refused++
	s.list(s.Refused, &bad)
	s.advance(1)
	return nil
}

// count counts events that are stored, now or before.
func (s *sender) count(now, before int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Stored += now
	s.Known += before
	s.advance(now + before)
}

func (s *sender) advance(n int) {
	if s.o.Advance != nil {
		s.o.Advance(n)
	}
}

// faultyEvent is the error of a run that stops at the same event again until that is corrected.
type faultyEvent struct {
	error
	line int
}

func (e faultyEvent) Unwrap() error { return e.error }
