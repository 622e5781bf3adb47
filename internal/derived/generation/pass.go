package generation

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/panics"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/lang/diag"
	"j17/internal/storage/store"
)

// pass goes through the feed for a plan.
type pass struct {
	s    *Service
	t    j17.Tenant
	plan *plan
	// fences hold as long as the spec deployed when the pass began stays deployed, so that nothing is written to an
	// environment that is gone. deployed are the keys of its readings.
	fences   []store.Fence
	deployed map[string]bool
	// extent is that of the feed when the pass began.
	extent store.Extent

	// at is the position reached, passed the number of entries of the feed up to it.
	at     j17.StreamID
	passed uint64
	// pending are the failures that are not written yet; unwritten is the number of entries of the feed since the
	// progress was.
	pending   []store.Side
	unwritten int
	// held is set while nobody writes events: the progress is then written with the commit that follows.
	held bool
}

// begin returns a pass that goes on where the records of a plan end.
func (s *Service) begin(ctx context.Context, t j17.Tenant, plan *plan) (*pass, error) {
	p := &pass{s: s, t: t, plan: plan, deployed: map[string]bool{}}
	d, fences, err := s.Engine.Deployed(t)
	if err != nil && j17.CodeOf(err) != j17.CodeNoSpec {
		return nil, err
	}
	p.fences = fences
	if d != nil {
		for _, of := range whole(d).types {
			for _, r := range of.readings {
				p.deployed[r.key()] = true
			}
		}
	}
	if p.extent, err = s.Store.Extent(ctx, t); err != nil {
		return nil, err
	}
	if err := p.load(ctx); err != nil {
		return nil, err
	}

	// The first position that any of them lacks.
	for i, r := range plan.records() {
		if r.at.IsZero() {
			r.since, r.life, r.changed = p.extent.Last, p.extent.Life, true
		}
		if i == 0 || r.at.Compare(p.at) < 0 {
			p.at, p.passed = r.at, r.passed
		}
	}
	p.show()
	return p, nil
}

// show tells Running how far the pass is.
func (p *pass) show() {
	of := p.s.turnOf(p.t)
	of.done.Store(p.passed)
	of.total.Store(max(p.extent.Events, p.passed))
}

// job is an event that is tried.
type job struct {
	r  *reading
	ev j17.Event
	// failed is why it fails, nil if it does not.
	failed *failure
}

// errRewritten makes a trial begin again, because events that it had tried were rewritten.
func errRewritten(typ string) error { return &store.SideConflict{Space: trials, Key: typ} }

// overtaken reports whether a trial failed because others changed what it rests on; the caller begins again.
func overtaken(err error) bool {
	_, ok := errors.AsType[*store.SideConflict](err)
	return ok
}

// page looks at one page of the feed, and reports whether it has reached the end.
func (p *pass) page(ctx context.Context) (ended bool, err error) {
	// The events that are to be tried.
	var jobs []job
	raw := make([]byte, 0, pageBytes/16)
	n, bytes := 0, 0
	for e, err := range p.s.Store.ReadChanges(ctx, p.t, p.at, p.s.PageEvents) {
		if err != nil {
			return false, err
		}
		n++
		if e.Note != nil {
			p.at = e.Note.Position
			if err := p.rewritten(ctx, e.Note); err != nil {
				return false, err
			}
			continue
		}
		ev := e.Event
		p.at = ev.StreamID
		of := p.plan.types[ev.Key.Type]
		if of == nil || ev.Erased() {
			continue
		}
		k := kind{ev.Type, upcast.Generation(ev)}
		if c := of.counted; c != nil && p.at.Compare(c.at) > 0 {
			c.of[k]++
		}
		if r := of.readings[k]; r != nil && p.at.Compare(r.at) > 0 {
			jobs = append(jobs, job{r: r})
			raw = ev.CopyTo(&jobs[len(jobs)-1].ev, raw)
			if bytes += len(ev.Raw); bytes >= pageBytes {
				break
			}
		}
	}
	if err := p.try(ctx, jobs); err != nil {
		return false, err
	}
	p.note(jobs)

	// How far it has come.
	p.passed += uint64(n)
	for _, r := range p.plan.records() {
		if r.at.Compare(p.at) < 0 {
			r.at, r.passed, r.changed = p.at, p.passed, true
		}
	}
	p.unwritten += n
	p.show()
	ended = n < p.s.PageEvents && bytes < pageBytes
	if !p.held && (p.unwritten >= flushEvents || len(p.pending) >= flushFailures) {
		return ended, p.flush(ctx)
	}
	return ended, nil
}

// rewritten begins again where a note says that events were rewritten which were tried or counted before.
func (p *pass) rewritten(ctx context.Context, note *store.Note) error {
	for _, stream := range note.Streams {
		of := p.plan.types[stream.Key.Type]
		if of == nil {
			continue
		}
		late := func(r *record) bool { return note.Position.Compare(r.at) > 0 && note.Position.Compare(r.since) > 0 }
		if of.counted != nil && late(&of.counted.record) ||
			slices.ContainsFunc(of.sorted(), func(r *reading) bool { return late(&r.record) }) {
			return errors.Join(errRewritten(of.name), p.s.reset(ctx, p.t, of.name))
		}
	}
	return nil
}

// try tries events, several at a time.
func (p *pass) try(ctx context.Context, jobs []job) error {
	var next atomic.Int64
	errs := make([]error, min(workers, len(jobs)))
	var parts panics.Parts
	for w := range errs {
		parts.Go(func() {
			b := work.New(ctx, work.Command)
			for i := int(next.Add(1)) - 1; i < len(jobs) && errs[w] == nil; i = int(next.Add(1)) - 1 {
				b.Renew(work.Command)
				jobs[i].failed, errs[w] = p.one(&jobs[i], b)
			}
		})
	}
	parts.Wait()
	return errors.Join(errs...)
}

// one tries an event. The error is not that the event fails.
func (p *pass) one(j *job, b *work.Budget) (*failure, error) {
	key := j.ev.Key.String()
	if j.r.plain {
		return p.plain(j, key, b)
	}
	_, err := upcast.Read(p.plan.types[j.r.aggregate].typ, &j.ev, key, b)
	if f := upcast.Failure(err); f != nil {
		return &failure{
			StreamID: j.ev.StreamID.String(), Key: key, Cause: string(f.Cause), Pointer: string(f.Pointer),
			Path:    f.Path,
			Message: f.Reason,
		}, nil
	}
	return nil, err
}

// plain compares an event that is read as it is stored with the schema.
func (p *pass) plain(j *job, key string, b *work.Budget) (*failure, error) {
	data, err := value.ParseStored(string(j.ev.Data))
	if err != nil {
		return nil, &store.CorruptionError{Where: key, Err: err}
	}
	found, err := j.r.event.Schema.Validate(data, b)
	f := &failure{
		StreamID: j.ev.StreamID.String(), Key: key, Cause: string(upcast.Schema),
		Pointer: string(j.r.event.Pointer.Key("schema")),
	}
	switch {
	case len(found) > 0:
		f.Path = j17.JoinPath("data", found[0].Path)
		f.Message = "the data do not meet '" + found[0].Constraint + "' of the schema"
		return f, nil
	case j17.CodeOf(err) == j17.CodeWorkLimit:
		f.Cause, f.Message = string(upcast.WorkLimit), "the check of the data takes more work than an event may cause"
		return f, nil
	}
	return nil, err
}

// note adds up what has become of events that were tried, and keeps the first failures.
func (p *pass) note(jobs []job) {
	for i := range jobs {
		j := &jobs[i]
		if j.r.events++; len(j.r.first) < examples {
			j.r.first = append(j.r.first, j.ev.StreamID)
		}
		if j.failed == nil {
			continue
		}
		if j.r.failed++; j.r.failed <= maxFailures {
			b, _ := json.Marshal(j.failed) // texts: it cannot fail
			p.pending = append(p.pending, store.Side{
				Op: store.Put, Space: failures, Key: j.r.failureKey(j.ev.StreamID), Value: b, Plain: true,
			})
		}
	}
}

// follow goes to the end of the feed, or not much beyond where it ended at first if writers are fast, and stores the
// progress.
func (p *pass) follow(ctx context.Context) error {
	machine := clock.System{} // a development server may show another time
	for late := 0; late < followPages; {
		if p.at.Compare(p.extent.Last) >= 0 {
			late++
		}
		began := machine.Now()
		ended, err := p.page(ctx)
		if err != nil {
			return err
		}
		if ended {
			break
		}
		if err := p.rest(ctx, machine.Now().Sub(began)); err != nil {
			return err
		}
	}
	return p.flush(ctx)
}

// rest leaves writers of the environment as much time as the last page took, at most maxRest.
func (p *pass) rest(ctx context.Context, took time.Duration) error {
	now, err := p.s.Store.Extent(ctx, p.t)
	if err != nil || now.Last == p.extent.Last {
		return err
	}
	machine := clock.System{}
	return machine.Wait(ctx, machine.Now().Add(min(took, maxRest)))
}

// finish goes to the end of the feed while nobody writes.
func (p *pass) finish(ctx context.Context) error {
	p.held = true
	for {
		if ended, err := p.page(ctx); err != nil || ended {
			return err
		}
	}
}

// again carries out a trial, and begins again while others overtake it.
func again(do func() error) error {
	for range maxTries {
		if err := do(); !overtaken(err) {
			return store.UserError(err)
		}
	}
	return j17.Errorf(j17.CodeBusy, "Stored events are rewritten over and over while they are tried. Try again in a moment.")
}

// fieldErrors returns failures of readings as findings about the spec.
func (p *plan) fieldErrors(r *reading, failed []failure) []j17.FieldError {
	found := make([]diag.Diagnostic, len(failed))
	for i := range failed {
		f := &failed[i]
		found[i] = diag.Diagnostic{Pointer: diag.Pointer(f.Pointer), Message: f.Message}
		found[i].Line, found[i].Column = p.d.Position(found[i].Pointer)
	}
	all := diag.FieldErrors(found)
	for i := range failed {
		f := &failed[i]
		all[i].Path = f.Path
		all[i].FailedEvent = &j17.FailedEvent{
			Cause: f.Cause, StreamID: f.StreamID, Key: f.Key, Type: r.Name, Generation: r.Generation,
		}
	}
	return all
}
