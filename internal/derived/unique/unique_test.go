package unique_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"j17"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/custody/loading"
	"j17/internal/derived/build"
	"j17/internal/derived/unique"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Specs of users who have an address and a badge, which are unique or not.
const (
	plain = `{"agent_types": ["user"], "aggregate_types": {"user": {"events": {
		"was_registered": {"schema": {}, "handler": {"merge":{"target":"","value":"$.data"}}},
		"was_deleted": {"schema": {}, "handler": []},
		"had_note": {"schema": {}, "handler": []}}},
		"robot": {"events": {"was_registered": {"schema": {}, "handler": []}}}}}`
	unlike = `{"agent_types": ["user"], "aggregate_types": {"user": {"events": {
		"was_registered": {"schema": {}, "handler": {"merge":{"target":"","value":"$.data"}}, "unique": {"email": {"value": "$.data.email"}, "badge": {"value": ["$.data.house", "$.data.badge"]}}},
		"was_deleted": {"schema": {}, "handler": [], "releases": ["email", "badge"]},
		"had_note": {"schema": {}, "handler": []}}},
		"robot": {"events": {"was_registered": {"schema": {}, "handler": []}}}}}`
)

// house is an engine with unique values, on a store in memory.
type house struct {
	*enginetest.Fixture
	tb     testing.TB
	unique *unique.Service
	builds *build.Service
	// deployed is where the feed ended when the spec was deployed, and mu is held while one is.
	deployed j17.StreamID
	mu       sync.Mutex
	// pause, if not nil, is called right before it is stored that a spec is deployed.
	pause func()
}

func newHouse(tb testing.TB, src string) *house {
	tb.Helper()
	h := &house{tb: tb}
	h.Fixture = enginetest.New(tb, engine.Options{})
	h.open()
	if err := h.deploy(src, true); err != nil {
		tb.Fatal(err)
	}
	return h
}

// open makes the services that keep unique values.
func (h *house) open() {
	log := slog.New(slog.DiscardHandler)
	h.builds = build.New(build.Options{Store: h.Store, Clock: h.Clock, Worker: worker.New(h.Clock, log), Logger: log})
	h.unique = unique.New(unique.Options{
		Store: h.Store, Builds: h.builds, Engine: h.Engine, Logger: log,
	})
	h.Use(h.part())
}

// part is what the engine is told of.
func (h *house) part() part.Part {
	p := h.unique.Part()
	p.Deploy.Renew = func(context.Context, j17.Tenant) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.adopt()
	}
	return p
}

// shared is the error of a deployment under which aggregates would have one value.
type shared []diag.Diagnostic

func (s shared) Error() string { return fmt.Sprint([]diag.Diagnostic(s)) }

// deploy deploys a spec.
func (h *house) deploy(src string, force bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	compiled, found := spec.Compile([]byte(src))
	if compiled == nil {
		h.tb.Fatal(found)
	}
	return h.unique.Deploy(h.tb.Context(), enginetest.Tenant, decider.New(compiled, nil),
		func(sides []store.Side, found []diag.Diagnostic) error {
			if len(found) > 0 && !force {
				return shared(found)
			}
			if h.pause != nil {
				h.pause()
			}

			// As the control plane does it: what is decided with another spec is no longer stored.
			extent, err := h.Store.Extent(h.tb.Context(), enginetest.Tenant)
			if err != nil {
				return err
			}
			at := store.AppendStamp(nil, extent.Last)
			if err := h.Store.Write(h.tb.Context(), enginetest.Tenant, append(sides, store.Side{
				Op: store.Put, Space: head().Space, Key: head().Key, Value: append(at, src...),
			})); err != nil {
				return err
			}
			return h.adopt()
		})
}

// head says in the store what is deployed.
func head() store.ItemName { return store.ItemName{Space: "test.spec", Key: "head"} }

// adopt hands a spec that is stored to the engine.
func (h *house) adopt() error {
	item, err := h.Store.Get(h.tb.Context(), enginetest.Tenant, head().Space, head().Key)
	if err != nil {
		return err
	}
	at, src, err := store.ReadStamp(item.Value)
	if err != nil {
		return err
	}
	h.deployed = at
	compiled, _ := spec.Compile(src)
	h.Deploy(enginetest.Tenant, compiled, nil, store.Fence{Space: head().Space, Key: head().Key, Rev: item.Rev})
	return nil
}

// id makes an identifier of a number, in its order.
func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// post writes an event of a user.
func (h *house) post(n int, event, data string) error {
	_, err := h.Execute(h.tb.Context(), enginetest.Command(h.tb, "user/"+id(n)+"/"+event, enginetest.Body(data)))
	return err
}

func (h *house) must(n int, event, data string) {
	h.tb.Helper()
	if err := h.post(n, event, data); err != nil {
		h.tb.Fatal(err)
	}
}

// items returns the items of a space by key.
func (h *house) items(space store.Space) map[string]string {
	h.tb.Helper()
	items, err := h.Store.Scan(h.tb.Context(), enginetest.Tenant, space, store.Range{}, 1_000_000)
	if err != nil {
		h.tb.Fatal(err)
	}
	all := map[string]string{}
	for _, item := range items {
		all[item.Key] = string(item.Value)
	}
	return all
}

// settle lets removals come to their end.
func (h *house) settle() {
	h.tb.Helper()
	if err := h.builds.Settle(h.tb.Context()); err != nil {
		h.tb.Fatal(err)
	}
}

// generations returns the ids of the generations in force by the names of their sets.
func (h *house) generations() map[string]string {
	h.tb.Helper()
	all := map[string]string{}
	for generation, text := range h.items("unique.sets") {
		_, name, _ := strings.Cut(text, `"name":"`)
		name, _, _ = strings.Cut(name, `"`)
		all[name] = generation
	}
	return all
}

// check compares who holds addresses with a list of it, of which each address has one digest, and makes sure that
// nothing else is kept.
func (h *house) check(wanted map[string]int, why string) {
	h.tb.Helper()
	generation := h.generations()["email"]
	var got, want []string
	for _, n := range wanted {
		want = append(want, "user:"+id(n))
	}
	holders, keepers := h.items("unique.value"), h.items("unique.held")
	for key, who := range holders {
		if strings.HasPrefix(key, generation+"/") && who != "" {
			got = append(got, who)
			if keepers[who+"/"+generation] == "" {
				h.tb.Errorf("%s: %s is held, and its holder does not say so", why, key)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		h.tb.Fatalf("%s: addresses are held by\n%v, not by\n%v", why, got, want)
	}
	n := 0
	for key, value := range keepers {
		if strings.HasSuffix(key, "/"+generation) && len(value) == 32 {
			n++
		}
	}
	if n != len(want) {
		h.tb.Fatalf("%s: %d hold something, of %d", why, n, len(want))
	}
}

// line is history with a list of who has which address: whose address is another's waits.
type line struct {
	held    map[string]int
	waiting map[string][]int
	has     map[int]string
}

func (l *line) take(n int, email string) {
	if had, ok := l.has[n]; ok && had == email {
		return
	}
	l.give(n)
	if email == "" {
		return
	}
	l.has[n] = email
	if _, taken := l.held[email]; taken {
		l.waiting[email] = append(l.waiting[email], n)
	} else {
		l.held[email] = n
	}
}

func (l *line) give(n int) {
	had, ok := l.has[n]
	if !ok {
		return
	}
	delete(l.has, n)
	if l.held[had] != n {
		l.waiting[had] = slices.DeleteFunc(l.waiting[had], func(w int) bool { return w == n })
		return
	}
	delete(l.held, had)
	if next := l.waiting[had]; len(next) > 0 {
		l.held[had], l.waiting[had] = next[0], next[1:]
	}
}

// TestHistoryIsFilledIn deploys sets over random histories, in which users had the addresses of others.
func TestHistoryIsFilledIn(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		h := newHouse(t, plain)
		if seed > 3 {
			h.unique.Pages(1+r.IntN(20), 1+r.IntN(10))
		}
		l := &line{held: map[string]int{}, waiting: map[string][]int{}, has: map[int]string{}}
		for range 60 + r.IntN(60) {
			n, email := r.IntN(8), fmt.Sprint("a", r.IntN(6))
			switch r.IntN(6) {
			case 0:
				h.must(n, "was_deleted", `{}`)
				l.give(n)
			case 1:
				h.must(n, "had_note", `{"email":"`+email+`"}`)
			case 2:
				h.must(n, "was_registered", `{"email":null}`)
			case 3:
				h.must(n, "was_registered", `{"email":{"no":"value"}}`)
			default:
				h.must(n, "was_registered", `{"email":"`+email+`"}`)
				l.take(n, email)
			}
		}
		conflicts := 0
		for _, w := range l.waiting {
			conflicts += len(w)
		}

		// A trial finds what the deployment finds, and changes nothing.
		compiled, _ := spec.Compile([]byte(unlike))
		trial, err := h.unique.Try(t.Context(), enginetest.Tenant, decider.New(compiled, nil), part.Asked{})
		found := trial.Found
		if err != nil || trial.Partial || len(found) != conflicts {
			t.Fatalf("seed %d: the trial finds %v, not %d: %v", seed, found, conflicts, err)
		}
		err = h.deploy(unlike, false)
		//nolint:errorlint // it is one, or nothing
		if told, _ := err.(shared); len(told) != conflicts || conflicts == 0 && err != nil ||
			fmt.Sprint([]diag.Diagnostic(told)) != fmt.Sprint(found) {
			t.Fatalf("seed %d: the deployment finds %v, not %d, as the trial: %v", seed, err, conflicts, found)
		}
		for email, waiting := range l.waiting {
			for _, n := range waiting {
				pair := "user:" + id(l.held[email]) + " and user:" + id(n)
				if !slices.ContainsFunc(
					found, func(d diag.Diagnostic) bool { return strings.Contains(d.Message, pair) },
				) {
					t.Fatalf("seed %d: %v does not name %s", seed, found, pair)
				}
			}
		}

		// A deployment that has failed leaves nothing; by force the first one has it.
		if conflicts > 0 {
			h.settle()
			for _, space := range []store.Space{
				"unique.value", "unique.held", "unique.waiting", "unique.sets", "unique.fillings",
			} {
				if left := h.items(space); len(left) > 0 {
					t.Fatalf("seed %d: %s has %v after a deployment that has failed", seed, space, left)
				}
			}
			if err := h.deploy(unlike, true); err != nil {
				t.Fatal(err)
			}
		}
		h.settle()
		h.check(l.held, fmt.Sprint("seed ", seed))
		if left := h.items("unique.waiting"); len(left) > 0 {
			t.Fatalf("seed %d: %v wait", seed, left)
		}

		// A spec without the sets leaves nothing.
		if err := h.deploy(plain, false); err != nil {
			t.Fatal(err)
		}
		h.settle()
		for _, space := range []store.Space{"unique.value", "unique.held", "unique.sets", "build.jobs"} {
			if left := h.items(space); len(left) > 0 {
				t.Fatalf("seed %d: %s has %v, and nothing is unique", seed, space, left)
			}
		}
	}
}

// refused reports whether an event was refused as its value is another's, and for whom.
func refused(tb testing.TB, err error) (holder string, is bool) {
	tb.Helper()
	e, ok := errors.AsType[*j17.Error](err)
	if !ok || e.Code != j17.CodeNotUnique {
		if err != nil {
			tb.Fatal(err)
		}
		return "", false
	}
	details, ok := e.Details.(decider.RefusalDetails)
	if !ok || details.Unique == "" || details.Pointer == "" || details.EventType == "" {
		tb.Fatalf("the details are %+v", e.Details)
	}
	return details.Holder, true
}

// TestOneHolds compares random writes, one after the other, with a list of who holds what.
func TestOneHolds(t *testing.T) {
	h := newHouse(t, unlike)
	r := rand.New(rand.NewPCG(3, 3))
	holders, has := map[string]int{}, map[int]string{}
	give := func(n int) {
		if had, ok := has[n]; ok {
			delete(has, n)
			delete(holders, had)
		}
	}
	for step := range 400 {
		n, email := r.IntN(6), fmt.Sprint("a", r.IntN(5))
		switch r.IntN(5) {
		case 0:
			h.must(n, "was_deleted", `{}`)
			give(n)
		case 1:
			h.must(n, "was_registered", `{"email":null}`)
		default:
			holder, no := refused(t, h.post(n, "was_registered", `{"email":"`+email+`"}`))
			other, taken := holders[email]
			if taken = taken && other != n; taken != no || no && holder != "user:"+id(other) {
				t.Fatalf("step %d: %d takes %s: refused for %q, and it is held by %v", step, n, email, holder, holders)
			}
			if !no {
				give(n)
				has[n], holders[email] = email, n
			}
		}
	}
	h.check(holders, "in the end")
}

// TestBatches lets one write give back and take in its order, all or nothing.
func TestBatches(t *testing.T) {
	h := newHouse(t, unlike)
	batch := func(n int, events string) error {
		_, err := h.Execute(
			t.Context(), enginetest.Command(t, "user/"+id(n), `{"events":[`+events+`],`+enginetest.Meta+`}`),
		)
		return err
	}
	take := func(email string) string { return `{"type":"was_registered","data":{"email":"` + email + `"}}` }
	const leave = `{"type":"was_deleted","data":{}}`
	for step, test := range []struct {
		n       int
		events  string
		holder  int // of what is refused, 0 for none
		holders map[string]int
	}{
		{1, take("a") + "," + take("b"), 0, map[string]int{"b": 1}},
		{2, take("a") + "," + take("b"), 1, map[string]int{"b": 1}}, // nothing is written
		{2, take("c") + "," + leave + "," + take("c"), 0, map[string]int{"b": 1, "c": 2}},
		{1, leave + "," + take("c"), 2, map[string]int{"b": 1, "c": 2}},
		{1, take("d") + "," + take("b"), 0, map[string]int{"b": 1, "c": 2}}, // back again
		{1, leave, 0, map[string]int{"c": 2}},
		{1, leave + "," + leave, 0, map[string]int{"c": 2}},
		{3, take("b"), 0, map[string]int{"b": 3, "c": 2}},
	} {
		holder, no := refused(t, batch(test.n, test.events))
		if no != (test.holder > 0) || no && holder != "user:"+id(test.holder) {
			t.Fatalf("step %d: refused for %q", step, holder)
		}
		h.check(test.holders, fmt.Sprint("step ", step))
	}
}

// TestRaces lets writers take the same values at once: each has one holder, whoever was told that he has it, and
// everybody else was refused.
func TestRaces(t *testing.T) {
	h := newHouse(t, unlike)
	const writers, rounds = 8, 25
	holders := map[string]int{}
	for round := range rounds {
		email := fmt.Sprint("a", round)
		won := make([]bool, writers)
		var all sync.WaitGroup
		for n := range writers {
			all.Go(func() {
				_, no := refused(t, h.post(n, "was_registered", `{"email":"`+email+`"}`))
				won[n] = !no
			})
		}
		all.Wait()
		winners := 0
		for n, is := range won {
			if is {
				winners++
				for had, who := range holders { // it was given back
					if who == n {
						delete(holders, had)
					}
				}
				holders[email] = n
			}
		}
		if winners != 1 {
			t.Fatalf("%s has %d holders", email, winners)
		}
	}
	h.check(holders, "in the end")

	// Those who write to one aggregate take turns, and none is refused.
	var all sync.WaitGroup
	for n := range writers {
		all.Go(func() {
			for round := range rounds {
				if err := h.post(100, "was_registered", fmt.Sprintf(`{"email":"b%d-%d"}`, n, round)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	mine := 0
	for _, who := range h.items("unique.value") {
		if who == "user:"+id(100) {
			mine++
		}
	}
	if mine != 1 {
		t.Fatalf("an aggregate holds %d values of a set", mine)
	}
}

// happened is a line of a file of events.
func happened(n int, event, data string) string {
	return fmt.Sprintf(`{"key":"user:%s","type":%q,"data":%s,"metadata":{"actor":{"type":"user","id":%q},"timestamp":1600000000}}`+"\n", id(n), event, data, enginetest.User)
}

// recorded imports a file, in units of up to that many events, or loads an empty environment with it.
func (h *house) recorded(text string, cold bool) error {
	open := func() (*command.FileReader, error) { return command.NewFileReader(strings.NewReader(text)), nil }
	l := &loading.Loader{Engine: h.Engine, Store: h.Store}
	if cold {
		in, err := open()
		if err != nil {
			return err
		}
		_, err = l.ColdStart(h.tb.Context(), enginetest.Tenant, in)
		return err
	}
	_, err := l.Import(h.tb.Context(), &loading.History{
		Tenant: enginetest.Tenant, ID: sha256.Sum256([]byte(text)), Open: open,
	})
	return err
}

// TestRecordedHistory compares random files, imported and loaded, with a list of who holds what: the first event that
// takes what another one holds is a fault of the file, of which nothing is stored then.
func TestRecordedHistory(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		cold := seed%3 == 0
		h := newHouse(t, unlike)
		holders, has := map[string]int{}, map[int]string{}
		for file := range 1 + r.IntN(3) {
			var text strings.Builder
			now, mine := maps.Clone(holders), maps.Clone(has)
			give := func(n int) {
				if had, ok := mine[n]; ok {
					delete(mine, n)
					delete(now, had)
				}
			}
			fault := -1
			for line := range 1 + r.IntN(12) {
				n, email := r.IntN(5), fmt.Sprint("a", r.IntN(6))
				if r.IntN(4) == 0 {
					text.WriteString(happened(n, "was_deleted", fmt.Sprintf(`{"file":%d}`, file)))
					give(n)
					continue
				}
				text.WriteString(happened(n, "was_registered", fmt.Sprintf(`{"email":%q,"file":%d}`, email, file)))
				if other, taken := now[email]; taken && other != n {
					if fault < 0 {
						fault = line
					}
					continue
				}
				give(n)
				now[email], mine[n] = n, email
			}
			err := h.recorded(text.String(), cold && file == 0)
			var e *j17.Error
			switch {
			case fault < 0 && err == nil:
				holders, has = now, mine
			case fault < 0, !errors.As(err, &e), e.Code != j17.CodeNotUnique, len(e.Errors) == 0,
				e.Errors[0].Pointer != fmt.Sprintf("/%d/data/email", fault):
				t.Fatalf("seed %d, file %d: the fault is not in event %d: %v\n%s", seed, file, fault, err, text.String())
			default:
				cold = false
			}
			h.check(holders, fmt.Sprint("seed ", seed, ", file ", file))
		}

		// What comes later is decided on it.
		for n := range 5 {
			email := fmt.Sprint("a", n)
			holder, no := refused(t, h.post(9, "was_registered", `{"email":"`+email+`"}`))
			other, taken := holders[email]
			if no != taken || no && holder != "user:"+id(other) {
				t.Fatalf("seed %d: %s is refused for %q: %v", seed, email, holder, holders)
			}
			if !no {
				h.must(9, "was_deleted", `{}`)
			}
		}
		h.check(holders, fmt.Sprint("seed ", seed, ", in the end"))
	}
}

// TestLoadedHistoryLeavesNothing loads values that were given back and taken by others: nothing is kept of what nobody
// holds any longer.
func TestLoadedHistoryLeavesNothing(t *testing.T) {
	h := newHouse(t, unlike)
	text := happened(1, "was_registered", `{"email":"a"}`) + happened(1, "was_registered", `{"email":"b"}`) + happened(
		2, "was_registered", `{"email":"a"}`,
	) +
		happened(3, "was_registered", `{"email":"c"}`) + happened(3, "was_deleted", `{}`)
	if err := h.recorded(text, true); err != nil {
		t.Fatal(err)
	}
	h.check(map[string]int{"b": 1, "a": 2}, "loaded")
	for _, space := range []store.Space{"unique.value", "unique.held"} {
		if kept := h.items(space); len(kept) != 2 {
			t.Errorf("two hold something, and %s has %v", space, kept)
		}
	}
	h.erase(1)
	if err := h.deploy(plain, false); err != nil {
		t.Fatal(err)
	}
	h.settle()
	for _, space := range []store.Space{"unique.value", "unique.held", "unique.sets"} {
		if left := h.items(space); len(left) > 0 {
			t.Errorf("nothing is unique any more, and %s has %v", space, left)
		}
	}
}

// TestDeploymentsAmongWriters deploys sets while writers go on: from the commit on nothing is stored that takes what
// another one holds, and before it nothing that was written is forgotten.
func TestDeploymentsAmongWriters(t *testing.T) {
	const writers, deployments = 4, 6
	h := newHouse(t, plain)
	h.unique.Pages(7, 5)
	ended, wrote := make(chan struct{}), make(chan struct{})
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 5))
			for {
				select {
				case <-ended:
					return
				default:
				}
				event, data := "was_registered", fmt.Sprintf(`{"email":"a%d"}`, r.IntN(30))
				if r.IntN(5) == 0 {
					event, data = "was_deleted", `{}`
				}
				if err := h.post(r.IntN(20), event, data); err != nil && j17.CodeOf(err) != j17.CodeNotUnique {
					t.Error(err)
				}
				select { // how many there are is bounded
				case wrote <- struct{}{}:
				case <-ended:
				}
			}
		})
	}
	h.pause = func() {
		for range 300 { // time enough for whoever is not held back
			select {
			case <-wrote:
			default:
				runtime.Gosched()
			}
		}
	}
	deploy := func(src string) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- h.deploy(src, true) }()
		meanwhile := wrote
		for n := 0; ; n++ {
			if n == 100 {
				meanwhile = nil
			}
			select {
			case <-meanwhile:
				continue
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
				return
			}
		}
	}
	unique := false
	for range deployments {
		for range 40 {
			<-wrote
		}
		src := plain
		if unique = !unique; unique {
			src = unlike
		}
		deploy(src)
	}
	deploy(unlike)
	for range 40 {
		<-wrote
	}
	close(ended)
	writing.Wait()
	h.settle()

	held, behind := h.replay()
	if behind == 0 {
		t.Error("nothing was written behind the last deployment")
	}
	h.check(held, "in the end")
}

// replay returns who holds which address by the events of the feed: after those up to the last deployment of unique
// addresses the first one of several has it, and no event behind it may take what another one holds. behind is how many
// of these there are.
func (h *house) replay() (held map[string]int, behind int) {
	h.tb.Helper()
	l := &line{held: map[string]int{}, waiting: map[string][]int{}, has: map[int]string{}}
	enforce := func() {
		for email, waiting := range l.waiting { // by force nobody waits any longer
			for _, n := range waiting {
				delete(l.has, n)
			}
			delete(l.waiting, email)
		}
	}
	for ev, err := range h.Store.ReadFeed(h.tb.Context(), enginetest.Tenant, j17.StreamID{}, 1_000_000) {
		if err != nil {
			h.tb.Fatal(err)
		}
		if ev.StreamID.Compare(h.deployed) > 0 {
			if behind++; behind == 1 {
				enforce()
			}
		}
		var n int
		if _, err := fmt.Sscanf(ev.Key.ID[24:], "%d", &n); err != nil {
			h.tb.Fatal(err)
		}
		if ev.Type == "was_deleted" {
			l.give(n)
			continue
		}
		email := strings.TrimSuffix(strings.TrimPrefix(string(ev.Data), `{"email":"`), `"}`)
		other, taken := l.held[email]
		if behind > 0 && taken && other != n {
			h.tb.Fatalf("%d takes %s at %s, behind the deployment at %s, and %d holds it", n, email, ev.StreamID, h.deployed, other)
		}
		l.take(n, email)
	}
	enforce()
	return l.held, behind
}

// TestATrialIsBounded tries a spec on history that is longer than a trial looks at: it tells what it has found until
// then, and that it is not all.
func TestATrialIsBounded(t *testing.T) {
	h := newHouse(t, plain)
	for n, email := range []string{"a", "a", "", "", "", "", "b", "b"} {
		if email == "" {
			h.must(n, "had_note", `{}`) // of which a trial keeps nothing
			continue
		}
		h.must(n, "was_registered", `{"email":"`+email+`"}`)
	}
	compiled, _ := spec.Compile([]byte(unlike))
	after := decider.New(compiled, nil)
	h.unique.Pages(2, 1000)
	for _, test := range []struct {
		most  uint64
		found int
		whole bool
	}{{3, 1, false}, {6, 1, false}, {100, 2, true}} {
		h.unique.LookAt(test.most)
		trial, err := h.unique.Try(t.Context(), enginetest.Tenant, after, part.Asked{})
		if err != nil || len(trial.Found) != test.found || trial.Partial == test.whole {
			t.Errorf("of %d elements of the feed: %+v, %v", test.most, trial, err)
		}
	}
}
