//go:build !race

package attention_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/custody/attention"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"
)

const (
	refusedMeter = "validation_failed meter.was_taken"
	refusedSaga  = "validation_failed asking.measure job"
)

// given lets n scheduled events be given up.
func (h *house) given(n int) {
	h.tb.Helper()
	for i := range n {
		h.must("job/"+id(i)+"/was_timed", `{"n":"`+secret+`"}`)
	}
	h.pass(20*time.Minute, time.Minute)
}

// records returns the audit records of an action, the newest first.
func (h *house) records(action string, limit int) []control.Record {
	h.tb.Helper()
	found, _, err := h.registry.Audit.List(
		h.tb.Context(), control.AuditQuery{Instance: h.instance.ID, Action: action}, limit,
	)
	if err != nil {
		h.tb.Fatal(err)
	}
	return found
}

// refused is what is wrong with a request, "" for nothing.
func refused(_ int, err error) j17.Code { return j17.CodeOf(err) }

// TestRetriesAreCountedFirst asks how many things wait for a cause, which changes nothing.
func TestRetriesAreCountedFirst(t *testing.T) {
	h := newHouse(t)
	h.given(3)
	h.must("job/"+id(9)+"/was_asked", `{"n":"`+secret+`"}`)
	h.settle()
	for kind, c := range map[string]struct {
		cause string
		want  int
	}{"scheduled": {refusedMeter, 3}, "saga": {refusedSaga, 1}} {
		if n, err := h.Count(t.Context(), h.tenant, kind, c.cause); n != c.want || err != nil {
			t.Errorf("%s: %d, %v", kind, n, err)
		}
	}
	for _, ask := range []func(kind, cause string) (int, error){
		func(kind, cause string) (int, error) { return h.Count(t.Context(), h.tenant, kind, cause) },
		func(kind, cause string) (int, error) { return h.Retry(t.Context(), h.tenant, kind, cause) },
	} {
		if got := refused(ask("scheduled", "validation_failed meter")); got != j17.CodeNotFound {
			t.Errorf("a cause that begins alike: %s", got)
		}
		if got := refused(ask("saga", refusedMeter)); got != j17.CodeNotFound {
			t.Errorf("the cause of another kind: %s", got)
		}
		for _, kind := range []string{
			"implication", "listener", "projection", "place", "spec", "backup", "erasure", "", "ghost",
		} {
			if got := refused(ask(kind, refusedMeter)); got != j17.CodeInvalidField {
				t.Errorf("%q: %s", kind, got)
			}
		}
	}
	if of := h.causes("scheduled"); len(of) != 1 || of[0].Count != 3 || len(h.records("attention.retry", 10)) > 0 {
		t.Errorf("counting has changed something: %+v", of)
	}
}

// TestRetriesAreRecorded retries what waits for a cause: the audit log has the whole and each thing, and nothing of the
// events.
func TestRetriesAreRecorded(t *testing.T) {
	h := newHouse(t)
	h.given(3)
	h.must("job/"+id(9)+"/was_asked", `{"n":"`+secret+`"}`)
	h.settle()
	h.must("order/"+id(8)+"/was_made", `{"name":"`+secret+`"}`)
	h.pass(10*time.Minute, 5*time.Second)
	ctx := control.WithActor(t.Context(), control.Actor{Kind: "operator", ID: "opr_1"}, "request")
	for _, c := range []struct {
		kind, cause, action string
		n                   int
	}{
		{"scheduled", refusedMeter, "scheduled.retry", 3},
		{"saga", refusedSaga, "saga.retry", 1},
		{"delivery", "500 told order", "delivery.retry", 1},
	} {
		sample := h.causes(c.kind)[0].Sample
		if n, err := h.Retry(ctx, h.tenant, c.kind, c.cause); n != c.n || err != nil {
			t.Fatalf("%s: %d, %v", c.kind, n, err)
		}
		await(t, func() bool { return len(h.records(c.action, 10)) == c.n })
		whole := h.records("attention.retry", 1)[0]
		if whole.Target != c.kind || whole.Details["cause"] != c.cause || whole.Details["count"] != strconv.Itoa(c.n) ||
			whole.Environment != j17.Prod || whole.Actor.ID != "opr_1" {
			t.Errorf("%+v", whole)
		}
		for _, one := range h.records(c.action, 10) {
			if !strings.Contains(strings.Join(sample, " "), one.Target) || one.Actor.ID != "opr_1" ||
				one.RequestID != "request" || strings.Contains(fmt.Sprintf("%+v", one), secret) {
				t.Errorf("%+v of %v", one, sample)
			}
		}
		if of := h.causes(c.kind); len(of) > 0 && c.kind != "delivery" { // which fails again beside the test
			t.Errorf("they are tried again, and %+v", of)
		}
	}

	// What is wrong is still wrong: they come back.
	h.pass(20*time.Minute, time.Minute)
	if of := h.causes("scheduled"); len(of) != 1 || of[0].Count != 3 {
		t.Errorf("%+v", of)
	}
	if of := h.causes("saga"); len(of) != 1 || of[0].Count != 1 {
		t.Errorf("%+v", of)
	}
}

// multiply makes of one dead letter as many as there can be of one event: it writes the items that it consists of under
// other numbers.
func (h *house) multiply(many int) {
	h.tb.Helper()
	ctx := h.tb.Context()
	spaces := []store.Space{"scheduled", "scheduled.id", "scheduled.dead_letter"}
	var first []store.Item
	var named string
	for _, space := range spaces {
		items, err := h.store.Scan(ctx, h.tenant, space, store.Range{}, 2)
		if err != nil || len(items) != 1 {
			h.tb.Fatal(space, items, err)
		}
		if first = append(first, items[0]); space == "scheduled.id" {
			named = items[0].Key
		}
	}
	write := func(sides []store.Side) {
		if err := h.store.Write(ctx, h.tenant, sides); err != nil {
			h.tb.Fatal(err)
		}
	}
	var sides []store.Side
	for n := 1; n < many; n++ {
		other := fmt.Sprintf("%s%05d", named[:len(named)-5], n)
		change := strings.NewReplacer(
			named, other, id(0), id(n), `"n":0`, `"n":`+strconv.Itoa(n), "0 job:", strconv.Itoa(n)+" job:", ".00000",
			fmt.Sprintf(".%05d", n),
		)
		for i, it := range first {
			value := string(it.Value)
			stamp := len(store.AppendStamp(nil, j17.StreamID{}))
			value = value[:stamp] + change.Replace(value[stamp:])
			sides = append(sides, store.Side{
				Op: store.Put, Space: spaces[i], Key: change.Replace(it.Key), Value: []byte(value),
				Cond: store.IfAbsent,
			})
		}
		if len(sides) > 3000 {
			write(sides)
			sides = nil
		}
	}
	write(sides)
}

// TestVeryManyDeadLetters has as many as can wait: as much of them is looked at as of some thousand, and a request
// retries a thousand.
func TestVeryManyDeadLetters(t *testing.T) {
	const many, looked = 100_000, 10_000
	h := newHouse(t)
	h.given(1)
	h.multiply(many)
	h.reads.Store(0)
	of := h.causes("scheduled")
	if len(of) != 1 || of[0].Count != looked || !of[0].More || len(of[0].Sample) != 20 {
		t.Errorf("%+v", of)
	}
	if n := h.reads.Load(); n > 2*looked {
		t.Errorf("%d reads for %d of %d dead letters", n, looked, many)
	}
	if n, err := h.Count(t.Context(), h.tenant, "scheduled", refusedMeter); n != looked || err != nil {
		t.Error(n, err)
	}
	n, err := h.Retry(t.Context(), h.tenant, "scheduled", refusedMeter)
	if n != attention.MaxRetried || err != nil {
		t.Fatal(n, err)
	}
	if got := refused(h.Retry(t.Context(), h.tenant, "scheduled", refusedMeter)); got != j17.CodeConflict {
		t.Errorf("the same meanwhile: %s", got)
	}
	left := func() int {
		n, err := h.store.Count(t.Context(), h.tenant, "scheduled.dead_letter", store.Range{}, many)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	await(t, func() bool { return left() == many-attention.MaxRetried })
	await(t, func() bool { return len(h.records("scheduled.retry", 2*attention.MaxRetried)) == attention.MaxRetried })
	if got := left(); got != many-attention.MaxRetried {
		t.Errorf("%d are left", got)
	}
	h.close() // what goes on ends with the server
	h.open()
}

// slow is a file system whose syncs take a millisecond of the time of a bubble, and are counted.
type slow struct {
	vfs.FS
	syncs *atomic.Int64
	// fast makes syncs take no time any more.
	fast *atomic.Bool
}

type slowFile struct {
	vfs.File
	slow
}

func (f slowFile) wait() {
	f.syncs.Add(1)
	if f.fast.Load() {
		return
	}
	<-time.After(syncTime) // of the time of a bubble, in which nobody waits
}

// syncTime is how long a sync takes.
const syncTime = time.Millisecond

// Sync takes its time.
func (f slowFile) Sync() error { f.wait(); return f.File.Sync() }

// SyncData takes its time.
func (f slowFile) SyncData() error { f.wait(); return f.File.SyncData() }

// Create makes a file that takes its time.
func (s slow) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, c)
	return slowFile{f, s}, err
}

// ReuseForWrite makes a file that takes its time.
func (s slow) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.ReuseForWrite(from, to, c)
	return slowFile{f, s}, err
}

// TestRetriesLeaveHalfTheRateToOthers retries on a disk whose writes take time, and has what is retried be tried
// meanwhile: no more than half of the time somebody writes for it. The disk is that of the embedded store.
func TestRetriesLeaveHalfTheRateToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var syncs atomic.Int64
		var fast atomic.Bool
		h := newHouseOn(t, testopen.Embedded(slow{vfs.NewMem(), &syncs, &fast}))
		const n = 50
		h.given(n)

		var others sync.WaitGroup
		others.Go(func() { _ = h.schedule.Run(h.running) })
		defer func() {
			fast.Store(true) // for a store that is closed syncs while others wait for its locks
			h.close()
			others.Wait()
		}()
		synctest.Wait()
		machine := clock.System{}
		began, before := machine.Now(), syncs.Load()
		if got, err := h.Retry(t.Context(), h.tenant, "scheduled", refusedMeter); got != n || err != nil {
			t.Fatal(got, err)
		}
		for len(h.records("scheduled.retry", 2*n)) < n {
			if err := machine.Wait(t.Context(), machine.Now().Add(syncTime)); err != nil {
				t.Fatal(err)
			}
		}
		took, written := machine.Now().Sub(began), time.Duration(syncs.Load()-before)*syncTime
		if t.Logf("%d were retried in %s, of which %s were writes", n, took, written); written < n*syncTime || written > took/2+took/20 {
			t.Errorf("%s of %s were writes", written, took)
		}
	})
}

// TestRetriesEndWithTheServer stops the server amid a retry: what it has not come to waits as before.
func TestRetriesEndWithTheServer(t *testing.T) {
	h := newHouse(t)
	h.given(1)
	h.multiply(500)
	if n, err := h.Retry(t.Context(), h.tenant, "scheduled", refusedMeter); n != 500 || err != nil {
		t.Fatal(n, err)
	}
	h.stop()
	<-h.ended
	if got := refused(h.Retry(t.Context(), h.tenant, "scheduled", refusedMeter)); got != j17.CodeUnavailable {
		t.Errorf("a stopped server: %s", got)
	}
	done := len(h.records("scheduled.retry", 1000))
	if of := h.causes("scheduled"); done < 500 && (len(of) != 1 || of[0].Count+done < 499 || of[0].Count+done > 500) {
		t.Errorf("%d were retried, and %+v wait", done, of)
	}
}
