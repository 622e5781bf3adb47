package unique_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

// gate is a store at which what the engine stores can be held up.
type gate struct {
	store.Store

	mu sync.Mutex
	// shut, if not nil, holds up who comes until it is closed; then he is told failure, if that is not nil.
	shut    chan struct{}
	failure error
	appends int
	// arrived is told of each who is held up, and decided of each plan with unique values.
	arrived, decided chan struct{}
}

// Append waits until the gate is open.
func (g *gate) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	g.mu.Lock()
	g.appends++
	shut, failure := g.shut, g.failure
	g.mu.Unlock()
	if shut != nil {
		g.arrived <- struct{}{}
		<-shut
		if failure != nil {
			return nil, failure
		}
	}
	return g.Store.Append(ctx, t, units)
}

// close shuts the gate and returns what opens it. Who waits is told failure, if that is not nil.
func (g *gate) close(failure error) (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.shut, g.failure, g.appends = shut, failure, 0
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.shut = nil
		close(shut)
	}
}

// watched tells of each plan.
type watched struct {
	part.Holding

	g *gate
}

func (w watched) Effects(after *decider.Values) part.Effects {
	e := w.Holding.Effects(after)
	w.g.decided <- struct{}{}
	return e
}

// newGate returns a house with a gate, where writers of user 1 take turns.
func newGate(t *testing.T) (*house, *gate) {
	t.Helper()
	h := newHouse(t, unlike)
	g := &gate{Store: h.Store, arrived: make(chan struct{}, 100), decided: make(chan struct{}, 10_000)}
	h.Engine = engine.New(engine.Options{Store: g, Clock: h.Clock, Logger: slog.New(slog.DiscardHandler)})
	h.open()
	h.Use(part.Part{Commit: part.Commit{Unique: func(
		t j17.Tenant, d *decider.Decider, fences []store.Fence,
	) part.Holding {
		return watched{h.unique.Look(t, d, fences), g}
	}}})
	if err := h.deploy(unlike, false); err != nil {
		t.Fatal(err)
	}

	// Two get in each other's way.
	open := g.close(nil)
	var both sync.WaitGroup
	for _, email := range []string{"x", "y"} {
		both.Go(func() {
			if err := h.post(1, "was_registered", `{"email":"`+email+`"}`); err != nil {
				t.Error(err)
			}
		})
		<-g.arrived
	}
	open()
	both.Wait()
	return h, g
}

// exchangesOfOne are writes for user 1, of which each can follow each.
func exchangesOfOne(n int) (path, body string) {
	take := func(email string) string {
		return `{"type":"was_registered","data":{"email":"` + email + `","house":1,"badge":` + fmt.Sprint(n%3) + `}}`
	}
	events := [][]string{
		{take("a")},
		{take("b")},
		{take("a")},
		{`{"type":"was_deleted","data":{}}`},
		{`{"type":"had_note","data":{}}`},
		{take("b"), take("a"), take("b")},
		{take(fmt.Sprint("own", n))},
		{`{"type":"was_deleted","data":{}}`, take("a")},
	}
	return "user/" + id(1), `{"events":[` + strings.Join(events[n%len(events)], ",") + `],` + enginetest.Meta + `}`
}

// TestExchangesOfOneAggregateShareCommits holds up the store, until many writers that exchange the values of one
// aggregate have decided, each on what the one before it leaves behind. All of it is stored in one go. Where the first
// of them is not stored, all others decide again.
func TestExchangesOfOneAggregateShareCommits(t *testing.T) {
	const writers = 24
	for _, failure := range []error{nil, store.ErrBusy} {
		t.Run(fmt.Sprint(failure), func(t *testing.T) {
			h, g := newGate(t)
			for len(g.decided) > 0 {
				<-g.decided
			}
			open := g.close(failure)
			var all sync.WaitGroup
			all.Go(func() {
				err := h.post(1, "was_registered", `{"email":"first"}`)
				if (err == nil) != (failure == nil) {
					t.Errorf("the first write: %v", err)
				}
			})
			<-g.arrived
			exchanging := 1
			for n := range writers {
				path, body := exchangesOfOne(n)
				if !strings.Contains(body, "had_note") {
					exchanging++
				}
				all.Go(func() {
					if _, err := h.Execute(t.Context(), enginetest.Command(t, path, body)); err != nil {
						t.Errorf("%s: %v", body, err)
					}
				})
			}
			for range exchanging {
				<-g.decided
			}
			open()
			all.Wait()

			// The last one may have come too late for the others, and so may the three who exchange nothing. Who is
			// notified of the failure first decides again first.
			if failure == nil && g.appends > 6 {
				t.Errorf("%d exchanges took %d commits", exchanging, g.appends)
			}
			held, _ := h.replayed()
			h.check(held, "in the end")
			if _, no := refused(t, h.post(2, "was_registered", `{"email":"first"}`)); no {
				t.Error("what nobody holds any more is not free")
			}
		})
	}
}

// TestHistoriesOfExchanges lets writers take and give back few values of few aggregates at random, several at once in
// batches, while others only add to them. By the order of the feed nobody takes what another one holds, and whoever was
// refused was so for one who held the value at some time between question and answer.
func TestHistoriesOfExchanges(t *testing.T) {
	const writers, each, users, emails = 12, 40, 3, 4
	h := newHouse(t, unlike)
	type refusal struct {
		email, holder string
		from, to      j17.StreamID
	}
	end := func() j17.StreamID {
		extent, err := h.Store.Extent(t.Context(), enginetest.Tenant)
		if err != nil {
			t.Error(err)
		}
		return extent.Last
	}
	var mu sync.Mutex
	var refusals []refusal
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 15))
			for range each {
				const leave, note = `{"type":"was_deleted","data":{}}`, `{"type":"had_note","data":{}}`
				email, n := fmt.Sprint("a", r.IntN(emails)), r.IntN(users)
				take := `{"type":"was_registered","data":{"email":"` + email + `"}}`
				events := take
				switch r.IntN(6) {
				case 0:
					events = leave
				case 1:
					events = note
				case 2:
					events = leave + "," + note + "," + take
				}
				c := enginetest.Command(t, "user/"+id(n), `{"events":[`+events+`],`+enginetest.Meta+`}`)
				if r.IntN(4) == 0 { // another one gives back what he has
					c = transaction(t, `{"writes":[{"key":"user:`+id((n+1)%users)+`","events":[`+leave+
						`]},{"key":"user:`+id(n)+`","events":[`+events+`]}],`+enginetest.Meta+`}`)
				}
				from := end()
				_, err := h.Execute(t.Context(), c)
				if holder, no := refused(t, err); no {
					mu.Lock()
					refusals = append(refusals, refusal{email, holder, from, end()})
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	held, tenures := h.replayed()
	h.check(held, "in the end")
	if len(refusals) == 0 {
		t.Error("nobody was refused")
	}
	for _, no := range refusals {
		had := false
		for _, at := range tenures[no.email] {
			had = had || "user:"+id(at.who) == no.holder && at.from.Compare(no.to) <= 0 &&
				(at.to == (j17.StreamID{}) || at.to.Compare(no.from) > 0)
		}
		if !had {
			t.Errorf("%s was refused for %s between %s and %s: %+v", no.email, no.holder, no.from, no.to, tenures[no.email])
		}
	}
	t.Logf("%d refusals, %+v", len(refusals), h.Stats())
}

// transaction returns what a POST of a body to /_transaction asks for.
func transaction(tb testing.TB, body string) *engine.Command {
	tb.Helper()
	v, err := value.ParseString(body)
	if err != nil {
		tb.Fatal(err)
	}
	return &engine.Command{Command: command.ReadTransaction(v), Tenant: enginetest.Tenant}
}

// tenure is that a user has held a value behind one position, and until another one, zero for still.
type tenure struct {
	who      int
	from, to j17.StreamID
}

// replayed returns who holds which address by the events of the feed, and who held it when; no event may take what
// another one holds.
func (h *house) replayed() (held map[string]int, tenures map[string][]tenure) {
	h.tb.Helper()
	held, tenures = map[string]int{}, map[string][]tenure{}
	has := map[int]string{}
	give := func(n int, at j17.StreamID) {
		if had, ok := has[n]; ok {
			delete(has, n)
			delete(held, had)
			tenures[had][len(tenures[had])-1].to = at
		}
	}
	for ev, err := range h.Store.ReadFeed(h.tb.Context(), enginetest.Tenant, j17.StreamID{}, 1_000_000) {
		if err != nil {
			h.tb.Fatal(err)
		}
		var n int
		if _, err := fmt.Sscanf(ev.Key.ID[24:], "%d", &n); err != nil {
			h.tb.Fatal(err)
		}
		switch ev.Type {
		case "was_deleted":
			give(n, ev.StreamID)
		case "was_registered":
			_, email, _ := strings.Cut(string(ev.Data), `"email":"`)
			email, _, _ = strings.Cut(email, `"`)
			if other, taken := held[email]; taken && other != n {
				h.tb.Fatalf("%d takes %s at %s, and %d holds it", n, email, ev.StreamID, other)
			} else if !taken {
				give(n, ev.StreamID)
				held[email], has[n] = n, email
				tenures[email] = append(tenures[email], tenure{who: n, from: ev.StreamID})
			}
		}
	}
	return held, tenures
}
