package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"j17"
	"j17/internal/client"
)

// importOptions are the flags of "events import".
type importOptions struct {
	batch, concurrency    int
	name, errorsFile      string
	continueOnError, json bool
}

const (
	defaultBatch = 500
	maxBatch     = 10_000
	// maxBatchBytes keeps batches well below what the server accepts.
	maxBatchBytes = 4 << 20
	// barInterval is how often the progress bar is drawn at most.
	barInterval = 100 * time.Millisecond
	// mostListed is how many faults are listed on the error stream.
	mostListed = 20
)

func (e *env) eventsImport() *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Write the events of a file",
		Long: `Write the events of a file, or of standard input for -. The file has one event a line, or is one JSON array of them:

  {"key":"TYPE:ID","type":"EVENT_TYPE","data":{...},"metadata":{"actor":{"type":"...","id":"..."}}}

An import that was stopped, by whatever, goes on where it was when the same command is run again, and stores no event
twice: what was acknowledged stands in FILE.j17-import until the import is complete, and everything sent carries an
idempotency key, which the server knows for 24 hours. For standard input there are only the keys.

Events get the time of the import. Those of one aggregate are stored in the order of the file.

Exit code 3: events were refused.`,
		Example: `  j17 events import events.jsonl --env staging
  your-export | j17 events import - --env staging`,
		Args: exactly("FILE"),
	}
	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.IntVar(&o.batch, "batch", 0, "how many consecutive events of an aggregate are sent at once (default 500; for standard input 1)")
	f.IntVar(&o.concurrency, "concurrency", 8, "how many requests are under way at once; 1 keeps the order of the whole file")
	f.BoolVar(&o.continueOnError, "continue-on-error", false, "leave out events that are refused, and list them in the file of --errors")
	f.StringVar(&o.errorsFile, "errors", "", "`file` of refused events, with --continue-on-error (default FILE.errors.jsonl)")
	f.StringVar(&o.name, "name", "", "`name` that tells this import from others with the same content")
	f.BoolVar(&o.json, "json", false, "print the summary as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file := args[0]
		switch {
		case o.batch < 0, o.batch > maxBatch, o.batch == 0 && f.Changed("batch"):
			return usageError{fmt.Errorf("--batch must be from 1 to %d", maxBatch)}
		case o.concurrency < 1 || o.concurrency > 256:
			return usageError{errors.New("--concurrency must be from 1 to 256")}
		case o.errorsFile != "" && !o.continueOnError:
			return usageError{errors.New("--errors needs --continue-on-error")}
		case o.continueOnError && o.errorsFile == "" && file == "-":
			return usageError{errors.New("--continue-on-error needs --errors FILE when the events come from standard input")}
		case o.errorsFile == "":
			o.errorsFile = file + ".errors.jsonl"
		}
		if o.continueOnError {
			for _, taken := range append(journalNames(file, e.getenv), file) {
				if e.sameFile(o.errorsFile, taken) {
					return usageError{fmt.Errorf("--errors cannot be %s, which the import reads: name another file", fileName(o.errorsFile))}
				}
			}
		}
		c, err := e.connectToWrite(r)
		if err != nil {
			return err
		}
		e.changing()
		im := &importer{env: e, o: o, client: c, file: file, stop: make(chan struct{})}
		if file == "-" {
			return im.fromStdin(cmd.Context())
		}
		return im.fromFile(cmd.Context())
	}
	return cmd
}

// importer is one run of an import.
type importer struct {
	env     *env
	o       importOptions
	client  *client.Client
	file    string
	journal *journal // nil for standard input
	bar     *progressbar.ProgressBar
	// stop is closed once nothing more shall be sent.
	stop chan struct{}

	mu      sync.Mutex
	failure error // the first one
	errors  *os.File
	tally
}

// tally counts events by what became of them.
type tally struct {
	stored, known, refused int
}

// importBatch is events of one aggregate that go together: the same actor and target, one after the other.
type importBatch []importEvent

func (b importBatch) span() span { return span{b[0].index, b[len(b)-1].index + 1} }

// fromFile reads the file twice: first to see whether it can be imported and to name the import, then to do it.
func (im *importer) fromFile(ctx context.Context) (err error) {
	info, err := os.Stat(im.file)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is a pipe or a device, and an import reads a file twice. Use - to import what standard input has", fileName(im.file))
	}
	if err != nil {
		return unreadable(im.file, err)
	}
	f, err := os.Open(im.file)
	if err != nil {
		return unreadable(im.file, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	source, faults, err := im.check(ctx, f)
	if err != nil {
		im.env.note("Nothing was sent.\n")
		return err
	}
	if len(source.ignored) > 0 {
		im.env.note("Not taken over from the file: %s. Events get the time of the import and positions of their own.\n", strings.Join(source.ignored, ", "))
	}
	if faults > 0 && !im.o.continueOnError {
		return refusal("%s cannot be imported: %s. Nothing was sent.", im.file, wrong(faults))
	}
	head := journalHead{Target: im.client.URL(), Seed: hex.EncodeToString(source.seed[:]), Events: source.index, Batch: im.o.batch}
	if head.Batch == 0 {
		head.Batch = defaultBatch
	}
	if im.journal, err = openJournal(journalNames(im.file, im.env.getenv), head); err != nil {
		return err
	}
	if im.journal.resumed {
		im.resume(head)
	}
	if _, err = f.Seek(0, io.SeekStart); err == nil {
		err = im.run(ctx, newImportSource(f, im.o.name), source.index)
	}
	return errors.Join(err, im.journal.close(err == nil))
}

// resume tells from where on the import goes on.
func (im *importer) resume(now journalHead) {
	kept, before := im.journal.head, 0
	for _, s := range im.journal.done {
		before += s.To - s.From
	}
	im.env.note("Going on with the import that %s tells of: %d of %d events are stored.\n", im.journal.name, before, kept.Events)
	if kept.Seed != now.Seed {
		im.env.note("The file has changed since. What was stored stays as it is.\n")
	}
	if im.o.batch != 0 && im.o.batch != kept.Batch {
		im.env.note("Batches go on to have up to %d events.\n", kept.Batch)
	}
}

// check reads a whole file and lists what cannot be read as an event.
func (im *importer) check(ctx context.Context, f *os.File) (*importSource, int, error) {
	var head [64]byte
	if n, _ := f.ReadAt(head[:], 0); isUTF16(head[:n&^1]) {
		return nil, 0, refusal("%s is in UTF-16: save it as UTF-8", im.file)
	}
	s, faults := newImportSource(f, im.o.name), 0
	for {
		_, err := s.next()
		if errors.Is(err, io.EOF) {
			return s, faults, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		bad, ok := errors.AsType[*lineError](err)
		switch {
		case err == nil:
		case !ok:
			return nil, 0, im.unread(ctx, err)
		case bad.fatal:
			return nil, 0, im.unread(ctx, bad)
		default:
			if faults++; !im.o.continueOnError {
				im.list(faults, bad)
			}
		}
	}
}

// unread is the error of a source that cannot be read to its end.
func (im *importer) unread(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	if bad, ok := errors.AsType[*lineError](err); ok {
		return faultyEvent{refusal("%s:%s", im.file, bad.Error()), bad.line}
	}
	return unreadable(im.file, err)
}

func (im *importer) list(n int, bad *lineError) {
	switch {
	case n <= mostListed:
		im.env.note("%s:%s\n", im.file, bad.Error())
	case n == mostListed+1:
		im.env.note("More faults are not listed.\n")
	}
}

// refusal is an error of exit code 3.
func refusal(format string, args ...any) error {
	return j17.Errorf(j17.CodeSchemaViolation, format, args...)
}

func wrong(n int) string {
	if n == 1 {
		return "1 event is wrong"
	}
	return fmt.Sprintf("%d events are wrong", n)
}

func (im *importer) fromStdin(ctx context.Context) error {
	return im.run(ctx, newImportSource(im.env.interruptible(im.env.in), im.o.name), -1)
}

// batchSize is how many events a batch may have. Batches of standard input have one, unless told otherwise: what sends
// them may end early, and with it the last batch.
func (im *importer) batchSize() int {
	switch {
	case im.journal != nil:
		return im.journal.head.Batch
	case im.o.batch > 0:
		return im.o.batch
	default:
		return 1
	}
}

// run sends the events of a source, total of them, -1 where that is not known.
func (im *importer) run(ctx context.Context, s *importSource, total int) error {
	if terminal(im.env.err) && !im.o.json {
		im.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(im.env.terminalErr()), progressbar.OptionShowCount(), progressbar.OptionThrottle(barInterval),
			progressbar.OptionSetDescription("events"), progressbar.OptionClearOnFinish())
	}
	queues := make([]chan importBatch, im.o.concurrency)
	var workers sync.WaitGroup
	for i := range queues {
		queues[i] = make(chan importBatch, 4)
		workers.Go(func() {
			for b := range queues[i] {
				if im.stopped() {
					continue
				}
				if err := im.process(ctx, b); err != nil {
					im.fail(err)
				}
			}
		})
	}
	err := im.read(ctx, s, queues)
	for _, q := range queues {
		close(q)
	}
	workers.Wait()
	if im.bar != nil {
		_ = im.bar.Finish() // it is decoration
	}
	if im.failure != nil {
		err = im.failure
	}
	if im.errors != nil {
		err = errors.Join(err, im.errors.Close())
	}
	if total < 0 && len(s.ignored) > 0 {
		im.env.note("Not taken over from the file: %s. Events get the time of the import and positions of their own.\n", strings.Join(s.ignored, ", "))
	}
	return im.conclude(ctx, s.index, err)
}

func (im *importer) stopped() bool {
	select {
	case <-im.stop:
		return true
	default:
		return false
	}
}

// fail has nothing more sent; what is under way is finished.
func (im *importer) fail(err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.failure == nil {
		im.failure = err
		close(im.stop)
	}
}

// read cuts the source into batches. All batches of one aggregate go into one queue, which keeps their order.
func (im *importer) read(ctx context.Context, s *importSource, queues []chan importBatch) error {
	most, size := im.batchSize(), 0
	var b importBatch
	flush := func() error {
		if len(b) == 0 {
			return nil
		}
		h := fnv.New32a()
		_, _ = io.WriteString(h, b[0].key.String()) // never fails
		batch := b
		b, size = nil, 0
		select {
		case queues[h.Sum32()%uint32(len(queues))] <- batch: //nolint:gosec // at most 256
			return nil
		case <-im.stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for !im.stopped() && ctx.Err() == nil {
		ev, err := s.next()
		if errors.Is(err, io.EOF) {
			return flush()
		}
		if bad, ok := errors.AsType[*lineError](err); ok && !bad.fatal && im.o.continueOnError {
			err = errors.Join(flush(), im.refuse(*bad, ""))
			if err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return errors.Join(flush(), im.unread(ctx, err))
		}
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
func (im *importer) process(ctx context.Context, b importBatch) error {
	if im.journal == nil {
		return im.send(ctx, b)
	}
	if at, ok := im.journal.cuts[b.span()]; ok {
		return im.parts(ctx, b, at)
	}
	var pending []importBatch
	for i, gap := 0, true; i < len(b); i++ {
		if im.journal.done.has(b[i].index) {
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
	im.count(tally{known: len(b) - sent})
	if sent == len(b) {
		return im.send(ctx, b)
	}
	for _, p := range pending {
		if err := im.process(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// parts processes a batch in parts that end before the events with the indexes at.
func (im *importer) parts(ctx context.Context, b importBatch, at []int) error {
	for _, i := range append(at, b[len(b)-1].index+1) {
		n := i - b[0].index
		if n < 1 || n > len(b) {
			continue
		}
		if err := im.process(ctx, b[:n]); err != nil {
			return err
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
	return nil
}

func (im *importer) send(ctx context.Context, b importBatch) error {
	events := make([]client.NewEvent, len(b))
	for i, ev := range b {
		events[i] = client.NewEvent{Type: ev.eventType, Data: ev.data}
	}
	o := client.WriteOptions{
		Actor: b[0].Actor, PreviousLength: b[0].PreviousLength, SkipOCC: b[0].SkipOCC, IdempotencyKey: im.idempotencyKey(b),
	}
	if b[0].Target != (j17.Agent{}) {
		o.Target = &b[0].Target
	}
	receipt, err := im.client.PostBatch(ctx, b[0].key, events, o)
	if err != nil {
		if refused, ok := errors.AsType[*client.Error](err); im.journal != nil && (!ok || refused.Status >= http.StatusInternalServerError) {
			im.journal.need() // what has become of the request is not known
		}
		return im.failed(ctx, b, err)
	}
	if im.journal != nil {
		if err := im.journal.stored(b.span()); err != nil {
			return err
		}
	}
	if receipt.Replayed {
		im.count(tally{known: len(b)})
	} else {
		im.count(tally{stored: len(b)})
	}
	return nil
}

// idempotencyKey is made of the import, the place in it, and the events.
func (im *importer) idempotencyKey(b importBatch) string {
	h := sha256.New()
	if im.journal != nil {
		_, _ = io.WriteString(h, im.journal.head.Seed) // never fails
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

// failed decides what a failed request means for the import.
func (im *importer) failed(ctx context.Context, b importBatch, err error) error {
	e, ok := errors.AsType[*client.Error](err)
	expects := ok && e.Problem.Code == j17.CodeConflict && b[0].PreviousLength != nil
	if !ok || !expects && !aboutEvents(e.Problem.Code) {
		return err
	}
	at, found := 0, e.Problem.EventIndex != nil || expects
	if e.Problem.EventIndex != nil {
		at = *e.Problem.EventIndex
		found = at >= 0 && at < len(b)
	}
	var cuts []int
	switch {
	case len(b) > 1 && e.Problem.Code == j17.CodePayloadTooLarge && !found:
		cuts = []int{b[len(b)/2].index}
	case len(b) > 1 && found && im.o.continueOnError:
		cuts = []int{b[at].index, b[at].index + 1}
	}
	if cuts != nil {
		if im.journal != nil {
			if err := im.journal.cut(b.span(), cuts); err != nil {
				return err
			}
		}
		return im.parts(ctx, b, cuts)
	}
	if found {
		b = b[at : at+1]
	}
	if !im.o.continueOnError {
		bad := fault(b[0], e)
		im.list(1, &bad)
		code := j17.CodeSchemaViolation
		if expects {
			code = j17.CodeConflict
		}
		return faultyEvent{j17.Errorf(code, "the import has stopped at line %d of %s, which the server refuses (%s)", bad.line, im.file, e.Problem.Code), bad.line}
	}
	for _, ev := range b {
		if err := im.refuse(fault(ev, e), e.Problem.Code); err != nil {
			return err
		}
	}
	return nil
}

// fault is what the server says about an event.
func fault(ev importEvent, e *client.Error) lineError {
	bad := lineError{index: ev.index, line: ev.line, path: e.Problem.Path, message: e.Problem.Message, raw: ev.raw}
	for _, f := range e.Problem.Errors {
		bad.message += " " + f.Message
	}
	return bad
}

// aboutEvents reports whether a refusal is about the events sent, so that others may be accepted.
func aboutEvents(code j17.Code) bool {
	//nolint:exhaustive // all other codes are about the request, the key or the server
	switch code {
	case j17.CodeInvalidJSON, j17.CodeMissingField, j17.CodeUnknownField, j17.CodeInvalidField, j17.CodeUndeclaredType,
		j17.CodeReservedEventType, j17.CodeSchemaViolation, j17.CodeForbidden, j17.CodeUnknownType, j17.CodeUnknownEventType,
		j17.CodePayloadTooLarge, j17.CodeInvalidIdentifier, j17.CodeSkipOCCNotAllowed:
		return true
	default:
		return false
	}
}

// refused is a line of the file of errors.
type refused struct {
	Line    int             `json:"line"`
	Code    j17.Code        `json:"code,omitempty"`
	Path    string          `json:"path,omitempty"`
	Message string          `json:"message"`
	Event   json.RawMessage `json:"event,omitempty"`
	// Text is what stands in the line where it is no JSON.
	Text string `json:"text,omitempty"`
}

// refuse leaves an event out and says so in the file of errors.
func (im *importer) refuse(bad lineError, code j17.Code) error {
	row := refused{Line: bad.line, Code: code, Path: bad.path, Message: bad.message}
	if json.Valid(bad.raw) {
		row.Event = bad.raw
	} else {
		row.Text = string(bad.raw)
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.errors == nil {
		f, err := os.OpenFile(im.o.errorsFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("the file of errors %s cannot be made: %w. Name another one with --errors", fileName(im.o.errorsFile), pathless(err))
		}
		im.errors = f
	}
	if err := json.NewEncoder(im.errors).Encode(row); err != nil {
		return fmt.Errorf("the file of errors %s cannot be written: %w. Make room, or name another one with --errors", fileName(im.o.errorsFile), pathless(err))
	}
	im.refused++
	im.list(im.refused, &bad)
	im.advance(1)
	return nil
}

func (im *importer) count(t tally) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.stored += t.stored
	im.known += t.known
	im.advance(t.stored + t.known)
}

func (im *importer) advance(n int) {
	if im.bar != nil {
		_ = im.bar.Add(n) // it is decoration
	}
}

// faultyEvent is the error of an import that stops at the same event again until that is corrected.
type faultyEvent struct {
	error
	line int
}

func (e faultyEvent) Unwrap() error { return e.error }

// conclude prints the summary, and for an import that is not complete how to go on.
func (im *importer) conclude(ctx context.Context, events int, err error) error {
	ended := err == nil
	if ended && im.refused > 0 {
		err = refusal("%s refused and left out; see %s. Correct them in %s and run the same command again: it sends only what is not stored yet", countWere(im.refused), im.o.errorsFile, im.file)
	}
	if err == nil {
		im.env.changed("the import is complete")
	} else {
		im.env.changed("%s stored", countWere(im.stored+im.known))
	}
	_ = im.summary(events, err == nil) // the end of the program tells of a failure
	if !ended {
		im.env.note("The import is not complete; known to be stored: %s. %s\n", count(im.stored+im.known, "event"), im.again(err))
		err = interrupted(ctx, err)
	}
	return err
}

// again says how an import that was stopped by an error goes on.
func (im *importer) again(err error) string {
	faulty, ok := errors.AsType[faultyEvent](err)
	switch {
	case ok && im.journal == nil:
		return fmt.Sprintf("Correct line %d, and send the whole input again with the same command within 24 hours: no event is stored twice.", faulty.line)
	case ok:
		return fmt.Sprintf("Correct line %d of %s and run the same command again: it goes on from there, and no event is stored twice.", faulty.line, im.file)
	case im.journal == nil:
		return "Run the same command on the same input again within 24 hours: no event is stored twice."
	default:
		return "Run the same command again to go on from there; no event is stored twice."
	}
}

func countWere(n int) string {
	if n == 1 {
		return "1 event was"
	}
	return fmt.Sprintf("%d events were", n)
}

func (im *importer) summary(events int, complete bool) error {
	if im.o.json {
		s := struct {
			Complete bool   `json:"complete"`
			Events   int    `json:"events"`
			Stored   int    `json:"stored"`
			Known    int    `json:"stored_before"`
			Refused  int    `json:"refused"`
			Errors   string `json:"errors_file,omitempty"`
		}{complete, events, im.stored, im.known, im.refused, ""}
		if im.refused > 0 {
			s.Errors = im.o.errorsFile
		}
		return json.NewEncoder(im.env.out).Encode(s)
	}
	if !complete && im.refused == 0 {
		return nil
	}
	_, err := fmt.Fprintf(im.env.out, "%s: %d stored, %d stored before, %d refused\n", count(events, "event"), im.stored, im.known, im.refused)
	return err
}
