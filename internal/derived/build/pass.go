package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/panics"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

const (
	// countPage is how many streams are counted at a time.
	countPage = 4096
	// maxSides and maxBytes are the number of writes, and their size, at which pages are committed.
	maxSides = 2000
	maxBytes = 1 << 20
	// maxTries bounds how often a page is made again because one of its conditions did not hold.
	maxTries = 100
	// maxRest is the longest pause after a page while others write.
	maxRest = 50 * time.Millisecond
)

// errContended is the error after maxTries.
var errContended = errors.New("others change the same items over and over; it is tried again")

// pass is the work on a build during one claim.
type pass struct {
	s     *Service
	kind  *Kind
	job   *Job
	claim *worker.Claim
	at    string
	p     progress

	// pages are those under way, in the order in which they will be committed; next is the progress at which the page
	// after them begins.
	pages []*pageRun
	next  progress
	ended bool
	// took is how long it took to make the page that was committed last.
	took time.Duration
	// part is the uncommitted part of a build whose writes are sorted; until is when the pass ends.
	part  gathered
	until time.Time
}

// pageRun is a page that is being made. done is closed when it has been made.
type pageRun struct {
	page   Page
	after  progress
	done   chan struct{}
	writes []store.Side
	err    error
	took   time.Duration
}

// runPass works on a build for a while.
func (s *Service) runPass(ctx context.Context, c *worker.Claim) error {
	s.counts.running.Add(1)
	defer s.counts.running.Add(-1)
	defer s.tell()
	t, err := s.open(ctx, c)
	if err != nil {
		return err
	}
	err = t.run(ctx)
	if failure, is := errors.AsType[*Failure](err); is {
		t.p.State, t.p.Error = Failed, j17.Record(failure)
		if err = s.o.Store.Write(ctx, c.Tenant, []store.Side{c.Remove(), t.p.put(t.at)}); err == nil {
			s.counts.failed.Add(1)
			s.o.Logger.LogAttrs(
				ctx, slog.LevelWarn, "a build has failed", slog.String("tenant", string(c.Tenant)),
				slog.String("build", c.Key), slog.Any("error", failure),
			)
		}
	}
	switch {
	case lost(err):
		return nil // the build has been canceled, begun again, or taken over
	case errors.Is(err, store.ErrEnded):
		return t.giveWay(ctx) // an erasure has ended the bulk write: the build continues from what is committed
	}
	return err
}

// lost reports whether the claim of a build no longer holds.
func lost(err error) bool {
	conflict, is := errors.AsType[*store.SideConflict](err)
	return is && conflict.Space == jobSpace
}

// open decodes the build of a claim.
func (s *Service) open(ctx context.Context, c *worker.Claim) (*pass, error) {
	var item jobItem
	if err := json.Unmarshal(c.Value, &item); err != nil {
		return nil, err
	}
	at, _, err := store.ReadStamp(item.At)
	if err != nil {
		return nil, err
	}
	var kind *Kind
	job := &Job{Tenant: c.Tenant, Types: item.Types, At: at, turn: c.Fence()}
	for _, k := range s.kinds {
		if prefix := key(k.Name, ""); len(c.Key) > len(prefix) && c.Key[:len(prefix)] == prefix {
			kind, job.Name = k, c.Key[len(prefix):]
		}
	}
	if kind == nil {
		return nil, fmt.Errorf("nothing here builds %s", c.Key)
	}
	t := &pass{s: s, kind: kind, job: job, claim: c, at: c.Key}
	if t.p, _, err = s.progress(ctx, c.Tenant, t.at); err != nil {
		return nil, err
	}
	t.next = t.p
	return t, nil
}

// run makes pages and commits them until all are done, or the pass ends.
func (t *pass) run(ctx context.Context) error {
	if err := t.count(ctx); err != nil {
		return err
	}

	// Pages under way when the pass ends are waited for, and dropped.
	making, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		for _, f := range t.pages {
			<-f.done
		}
		t.dropPart()
	}()
	t.until = t.s.o.Clock.Now().Add(passTime)
	for range passPages {
		if err := t.fill(ctx, making); err != nil {
			return err
		}
		if len(t.pages) == 0 {
			if err := t.commitPart(ctx); err != nil {
				return err
			}
			return t.end(ctx)
		}
		if err := t.commit(ctx, making); err != nil {
			return err
		}
		if !t.s.o.Clock.Now().Before(t.until) {
			break
		}
	}
	if err := t.commitPart(ctx); err != nil {
		return err
	}
	return t.giveWay(ctx)
}

// giveWay ends the pass, and makes the build due again.
func (t *pass) giveWay(ctx context.Context) error {
	return t.s.o.Store.Write(ctx, t.job.Tenant, []store.Side{t.claim.Replace(t.claim.Value, t.s.o.Clock.Now())})
}

// passPages bounds the commits of a pass.
const passPages = 1000

// count counts the streams. After a crash it begins again.
func (t *pass) count(ctx context.Context) error {
	if t.p.Counted {
		return nil
	}
	t.p.Total = 0
	for _, typ := range t.job.Types {
		for after := ""; ; {
			ids, err := t.s.o.Store.Streams(ctx, t.job.Tenant, typ, after, countPage)
			if err != nil {
				return err
			}
			t.p.Total += uint64(len(ids))
			if len(ids) < countPage {
				break
			}
			if after = ids[len(ids)-1]; ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	t.p.Counted = true
	t.next = t.p
	t.s.show(t.job.Tenant, t.at, t.p)
	return nil
}

// fill begins to make pages, as many as there is room for.
func (t *pass) fill(ctx, making context.Context) error {
	busy, err := t.s.busy(ctx)
	if err != nil {
		return err
	}
	room := cap(t.s.slots) + 1 // one more, so that no slot is idle during a commit
	if busy {
		room = 1
	}
	for len(t.pages) < room && !t.ended {
		f, err := t.nextPage(ctx)
		if err != nil {
			return err
		}
		if f == nil {
			t.ended = true
			break
		}
		if busy {
			t.s.rest(ctx, t.took)
		}
		t.pages = append(t.pages, f)
		go t.make(making, f)
	}
	return nil
}

// nextPage returns the page after those under way, nil if there is none.
func (t *pass) nextPage(ctx context.Context) (*pageRun, error) {
	for t.next.Type < len(t.job.Types) {
		typ := t.job.Types[t.next.Type]
		ids, err := t.s.o.Store.Streams(ctx, t.job.Tenant, typ, t.next.After, t.pageSize())
		if err != nil {
			return nil, err
		}
		if len(ids) == 0 {
			t.next.Type, t.next.After = t.next.Type+1, ""
			continue
		}
		t.next.After, t.next.Done = ids[len(ids)-1], t.next.Done+uint64(len(ids))
		return &pageRun{page: Page{t.job, typ, ids}, after: t.next, done: make(chan struct{})}, nil
	}
	return nil, nil
}

// pageSize returns how many streams a page has. It is halved for each failed attempt, in case a page takes too long or
// writes too much.
func (t *pass) pageSize() int { return max(t.kind.PageSize>>min(t.claim.Attempt-1, 30), 1) }

// make makes a page, when one of the slots of all builds is free.
func (t *pass) make(ctx context.Context, f *pageRun) {
	defer close(f.done)
	select {
	case t.s.slots <- struct{}{}:
		defer func() { <-t.s.slots }()
	case <-ctx.Done():
		f.err = ctx.Err()
		return
	}
	begin := clock.System{}.Now()
	f.err = panics.Logged(ctx, t.s.o.Logger, "a page of build "+t.at+" of "+string(t.job.Tenant), func() (err error) {
		f.writes, err = t.kind.Page(ctx, &f.page)
		return err
	})
	f.took = clock.System{}.Now().Sub(begin)
}

// commit commits the first page under way, together with those after it that are ready; for sorted kinds it adds the
// first page to the part.
func (t *pass) commit(ctx, making context.Context) error {
	if err := t.await(ctx); err != nil {
		return err
	}
	if f := t.pages[0]; errors.Is(f.err, ErrTooMuch) && len(f.page.IDs) > 1 {
		t.halve(making)
		return nil
	}
	if t.kind.Sorted {
		return t.gather(ctx)
	}
	var sides []store.Side
	n, bytes := 0, 0
	for _, f := range t.pages {
		if n > 0 && (!f.ready() || f.err != nil || len(sides) >= maxSides || bytes >= maxBytes) {
			break
		}
		if f.err != nil {
			return f.err
		}
		n++
		t.took = f.took
		sides = append(sides, f.writes...)
		for i := range f.writes {
			bytes += len(f.writes[i].Key) + len(f.writes[i].Value)
		}
	}
	last := t.pages[n-1].after
	err := t.s.o.Store.Write(ctx, t.job.Tenant, append(sides, last.put(t.at)), t.claim.Fence())
	if _, conflict := errors.AsType[*store.SideConflict](err); conflict && !lost(err) {
		return t.again(ctx, making, n)
	}
	if err != nil {
		return err
	}
	t.committed(n)
	return nil
}

// halve begins to make the first page under way again, as two pages.
func (t *pass) halve(making context.Context) {
	f := t.pages[0]
	some, others := f.page.IDs[:len(f.page.IDs)/2], f.page.IDs[len(f.page.IDs)/2:]
	middle := f.after
	middle.After, middle.Done = some[len(some)-1], f.after.Done-uint64(len(others))
	t.pages = append([]*pageRun{
		{page: Page{t.job, f.page.Type, some}, after: middle, done: make(chan struct{})},
		{page: Page{t.job, f.page.Type, others}, after: f.after, done: make(chan struct{})},
	}, t.pages[1:]...)
	go t.make(making, t.pages[0])
	go t.make(making, t.pages[1])
}

// committed records the first n pages as committed.
func (t *pass) committed(n int) {
	done := t.pages[n-1].after
	t.s.counts.streams.Add(done.Done - t.p.Done)
	t.p = done
	t.pages = t.pages[n:]
}

// again makes the first n pages again, of which a condition did not hold, and commits each alone.
func (t *pass) again(ctx, making context.Context, n int) error {
	for range n {
		old := t.pages[0]
		for try := 0; ; try++ {
			f := &pageRun{page: old.page, after: old.after, done: make(chan struct{})}
			t.make(making, f)
			if f.err != nil {
				return f.err
			}
			err := t.s.o.Store.Write(ctx, t.job.Tenant, append(f.writes, f.after.put(t.at)), t.claim.Fence())
			if err == nil {
				break
			}
			if _, conflict := errors.AsType[*store.SideConflict](err); !conflict || lost(err) {
				return err
			}
			if try == maxTries {
				return errContended
			}
		}
		t.committed(1)
	}
	return nil
}

// ready reports whether the page has been made.
func (f *pageRun) ready() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// end ends the build, or postpones its end if Done returns Later.
func (t *pass) end(ctx context.Context) error {
	var sides []store.Side
	if t.kind.Done != nil {
		var err error
		sides, err = t.kind.Done(ctx, t.job)
		if later, is := errors.AsType[Later](err); is {
			p := t.next
			return t.s.o.Store.Write(ctx, t.job.Tenant, []store.Side{
				p.put(t.at), t.claim.Replace(t.claim.Value, t.s.o.Clock.Now().Add(later.For)),
			})
		}
		if err != nil {
			return err
		}
	}
	p := t.next
	p.State, p.Error = Done, ""
	err := t.s.o.Store.Write(ctx, t.job.Tenant, append(sides, t.claim.Remove(), p.put(t.at)))
	if err == nil {
		t.s.counts.ended.Add(1)
	}
	return err
}

// busy reports whether events were written since the last call.
func (s *Service) busy(ctx context.Context) (bool, error) {
	const page = 256
	since := s.since.Load()
	first := since == 0
	for {
		changed, err := s.o.Store.Changed(ctx, since, page)
		if err != nil {
			return false, err
		}
		for _, c := range changed {
			since = max(since, c.Number)
		}
		if len(changed) < page {
			break
		}
	}
	before := s.since.Swap(since)
	return !first && since > before, nil
}

// rest leaves writers as much time as the last page took, at most maxRest.
func (s *Service) rest(ctx context.Context, took time.Duration) {
	machine := clock.System{} // the machine's clock: a development server may show another time
	_ = machine.Wait(ctx, machine.Now().Add(min(took, maxRest)))
}
