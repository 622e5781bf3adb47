//go:build !race

package attention_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/engine/enginetest"
	"j17/internal/custody/backup"
	"j17/internal/custody/backup/repository"
	"j17/internal/derived/projection"
	"j17/internal/plane/deploy"
	"j17/internal/storage/store"
	"j17/internal/storage/testopen"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestNothingWaits asks of an environment that is as it should be, without a spec and with one.
func TestNothingWaits(t *testing.T) {
	h := newHouse(t)
	h.answers.Store(http.StatusOK)
	h.must("order/"+id(1)+"/was_made", `{"total":1}`)
	h.settle()
	for _, of := range []j17.Tenant{h.tenant, j17.TenantOf(h.instance.ID, j17.Staging)} {
		if all, err := h.Causes(t.Context(), of); err != nil || len(all) > 0 {
			t.Errorf("%s: %+v, %v", of, all, err)
		}
	}
}

// TestScheduledEventsWait lets events come due that their aggregate does not take.
func TestScheduledEventsWait(t *testing.T) {
	h := newHouse(t)
	h.must("job/"+id(1)+"/was_timed", `{"n":"`+secret+`"}`)
	h.pass(20*time.Minute, time.Minute)
	got := h.want("scheduled", "validation_failed meter.was_taken", "retry", "delete", "open")
	if len(got.Sample) != 1 || got.Since == nil || !got.Since.Equal(*got.Newest) || got.Since.After(h.clock.Now()) {
		t.Errorf("%+v", got)
	}
}

// TestSagasWait lets a step of a saga be refused.
func TestSagasWait(t *testing.T) {
	h := newHouse(t)
	h.must("job/"+id(1)+"/was_asked", `{"n":"`+secret+`"}`)
	h.settle()
	got := h.want("saga", "validation_failed asking.measure job", "retry", "open")
	if len(got.Sample) != 1 || !strings.HasPrefix(got.Sample[0], "sag") && got.Sample[0] == "" {
		t.Errorf("%+v", got)
	}
}

// TestDeliveriesWait has an endpoint fail, and not answer at all, until deliveries are given up.
func TestDeliveriesWait(t *testing.T) {
	for status, cause := range map[int64]string{http.StatusBadGateway: "502 told order", 0: "no_answer told order"} {
		h := newHouse(t)
		h.answers.Store(status)
		h.must("order/"+id(1)+"/was_made", `{"name":"`+secret+`"}`)
		h.pass(10*time.Minute, 5*time.Second)
		if got := h.want("delivery", cause, "retry", "open"); len(got.Sample) != 1 || got.Since == nil {
			t.Errorf("%+v", got)
		}
	}
}

// TestImplicationsWait writes an event that is refused for what it implies.
func TestImplicationsWait(t *testing.T) {
	h := newHouse(t)
	if err := h.post("job/"+id(1)+"/was_pushed", `{"n":"`+secret+`"}`); err == nil {
		t.Fatal("it was written")
	}
	of := h.causes("implication")
	if len(of) != 1 || of[0].Count != 1 || !strings.HasPrefix(of[0].Cause, "validation_failed /") ||
		!strings.HasSuffix(of[0].Cause, " job.was_pushed") ||
		len(of[0].Sample) != 1 || of[0].Sample[0] != "job:"+id(1) || of[0].Since == nil {
		t.Errorf("%+v", of)
	}
}

// TestListenersWait pauses a listener, has an endpoint that is gone, and has more events than listeners come to.
func TestListenersWait(t *testing.T) {
	h := newHouse(t)
	if err := h.listeners.Pause(t.Context(), h.tenant, "told"); err != nil {
		t.Fatal(err)
	}
	h.want("listener", "paused told", "resume", "open")
	if err := h.listeners.Resume(t.Context(), h.tenant, "told"); err != nil {
		t.Fatal(err)
	}
	h.answers.Store(http.StatusGone)
	h.must("order/"+id(1)+"/was_made", `{"name":"`+secret+`"}`)
	h.settle()
	h.want("listener", "disabled told", "resume", "open")
	if err := h.listeners.Resume(t.Context(), h.tenant, "told"); err != nil {
		t.Fatal(err)
	}
	h.answers.Store(http.StatusOK)
	h.settle()
	h.stop()
	<-h.ended

	// A thousand events are not many, one more are. Nothing looks at them any more.
	write := func(n int) {
		t.Helper()
		var unit store.Append
		for i := range n {
			unit.Events = append(unit.Events, store.NewEvent{
				Key: j17.Key{Type: "order", ID: id(i)}, Type: "was_made", Data: []byte(`{"total":1}`),
				Metadata: []byte(`{}`),
			})
		}
		if _, err := h.store.Append(t.Context(), h.tenant, []store.Append{unit}); err != nil {
			t.Fatal(err)
		}
	}
	write(1000)
	if of := h.causes("listener"); len(of) > 0 {
		t.Errorf("%+v", of)
	}
	write(1)
	h.want("listener", "behind told", "open")
}

// TestProjectionsWait takes away what a definition needs, gives a build up, and spoils what was built.
func TestProjectionsWait(t *testing.T) {
	h := newHouse(t)
	h.must("order/"+id(1)+"/was_made", `{"total":7,"name":"`+secret+`"}`)
	const posted = `{"name":"sums","for_each":"order","sources":{"order":"$key"},"select":{"total":"$.order.total"}}`
	if _, err := h.projections.PostDefinition(t.Context(), h.tenant, projection.Posting{
		Definition: []byte(posted),
	}); err != nil {
		t.Fatal(err)
	}
	// As another version of the program may find it.
	h.engine.Deploy(h.tenant, enginetest.Compiled(t, strings.ReplaceAll(plain(), `"order`, `"sale`)), nil)
	h.want("projection", "invalid sums", "open")
	h.deployed(plain())
	if of := h.causes("projection"); len(of) > 0 {
		t.Errorf("it is whole again, and %+v", of)
	}

	// What was built is built again, and given up.
	h.deployed(indexed())
	h.settle()
	h.stop() // so that nothing is built
	<-h.ended
	if err := h.projections.Rebuild(t.Context(), h.tenant, "totals"); err != nil {
		t.Fatal(err)
	}
	if of := h.causes("projection"); len(of) > 0 {
		t.Errorf("it is being built, and %+v", of)
	}
	if err := h.projections.CancelBuild(t.Context(), h.tenant, "totals"); err != nil {
		t.Fatal(err)
	}
	h.want("projection", "build_failed totals", "open")
}

// TestDamageWaits spoils what was built of events, in the files of the embedded store, which the search for damage
// finds.
func TestDamageWaits(t *testing.T) {
	for kind, space := range map[string]string{"projection": "index.rows", "place": "places"} {
		h := newHouseOn(t, testopen.Embedded(vfs.NewMem()))
		h.deployed(indexed())
		h.must("order/"+id(1)+"/was_made", `{"total":7,"name":"`+secret+`"}`)
		h.must("shop/"+id(2)+"/was_opened", `{"at":{"lat":1,"lng":2},"name":"`+secret+`"}`)
		h.settle()
		h.again(spoil(space))
		h.scrub.Begin()
		for n := 0; h.scrub.Status().Phase != "idle" || h.scrub.Status().Pass.EndedAt.IsZero(); n++ {
			if err := h.scrub.Round(t.Context()); err != nil || n > 10_000 {
				t.Fatal(n, err)
			}
		}
		if a := h.want(kind, "damage "+space, "open"); a.Since == nil {
			t.Errorf("%+v", a)
		}
	}
}

// TestWhatCannotBeReadWaits spoils what a kind is found by, in the files of the embedded store: that is told, and so is
// what waits of other kinds.
func TestWhatCannotBeReadWaits(t *testing.T) {
	h := newHouseOn(t, testopen.Embedded(vfs.NewMem()))
	const posted = `{"name":"sums","for_each":"order","sources":{"order":"$key"},"select":{"total":"$.order.total"}}`
	if _, err := h.projections.PostDefinition(t.Context(), h.tenant, projection.Posting{
		Definition: []byte(posted),
	}); err != nil {
		t.Fatal(err)
	}
	h.given(1)
	h.again(spoil("projections"))
	h.want("scheduled", refusedMeter, "retry", "delete", "open")
	if of := h.causes("projection"); len(of) != 1 || of[0].Cause != "damage projection" || !of[0].More {
		t.Errorf("%+v", of)
	}
}

// TestSpecsWait prepares a spec, and deploys another one meanwhile.
func TestSpecsWait(t *testing.T) {
	h := newHouse(t)
	h.must("order/"+id(1)+"/was_made", `{"total":7}`)
	h.settle()
	h.stop() // so that nothing is built
	<-h.ended
	request := deploy.Request{Instance: h.instance.ID, Environment: j17.Prod, Source: []byte(indexed()), Prepare: true}
	if _, err := h.deploy.Deploy(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if of := h.causes("spec"); len(of) > 0 {
		t.Errorf("it is being prepared, and %+v", of)
	}
	h.deployed(strings.Replace(plain(), `"agent_types": ["user"]`, `"agent_types": ["user", "robot"]`, 1))
	h.clock.Advance(time.Hour)
	if err := h.deploy.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, err := h.deploy.Prepared(t.Context(), h.tenant)
	if err != nil || next.Failed == "" {
		t.Fatal(next, err)
	}
	if got := h.want("spec", "prepare_failed "+next.Hash[:12], "delete", "open"); got.Sample[0] != next.Hash[:12] {
		t.Errorf("%+v", got)
	}
}

// await waits for what is done beside the test.
func await(tb testing.TB, is func() bool) {
	tb.Helper()
	machine := clock.System{}
	for until := machine.Now().Add(time.Minute); !is(); { // it ends what would never come
		if machine.Now().After(until) {
			tb.Fatal("it does not come about")
		}
		_ = machine.Wait(tb.Context(), machine.Now().Add(time.Millisecond))
	}
}

// TestBackupsWait makes backups that fail, one that does not, and none for too long.
func TestBackupsWait(t *testing.T) {
	h := newHouse(t)
	h.must("order/"+id(1)+"/was_made", `{"total":7}`)
	h.settle()
	made := func() backup.Status {
		t.Helper()
		b, err := h.backups.Create(t.Context(), h.tenant, repository.Full)
		if err != nil {
			t.Fatal(err)
		}
		await(t, func() bool {
			b, err = h.backups.Get(t.Context(), h.tenant, b.ID)
			return err != nil || b.Status != backup.Running
		})
		return b.Status
	}
	folder := filepath.Join(h.folder, "backups")
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // no folder can be there
		t.Fatal(err)
	}
	if got := made(); got != backup.Failed {
		t.Fatal(got)
	}
	h.want("backup", "failed full", "delete", "open")
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if got := made(); got != backup.Completed {
		t.Fatal(got)
	}
	late := func(want int) {
		t.Helper()
		if of := h.causes("backup"); len(of) != want ||
			want > 0 && (of[0].Cause != "late" || of[0].Count != 1 || of[0].Since == nil) {
			t.Errorf("at %s: %+v", h.clock.Now(), of)
		}
	}
	late(0)

	// Nobody makes another one.
	h.stop()
	<-h.ended
	h.clock.Advance(100 * time.Hour)
	late(0)
	if _, err := h.backups.Change(
		t.Context(), h.instance.ID, func(s *backup.Settings) { s.EveryHours = 60 },
	); err != nil {
		t.Fatal(err)
	}
	h.clock.Advance(20 * time.Hour)
	late(0)
	h.clock.Advance(time.Second)
	late(1)
}

// TestErasuresWait lets the time come in which a tombstone may be executed, and has its execution fail.
func TestErasuresWait(t *testing.T) {
	h := newHouse(t)
	h.must("order/"+id(1)+"/was_made", `{"name":"`+secret+`"}`)
	made, err := h.erasures.Create(t.Context(), h.tenant, "order", id(1), wire.NewTombstone{})
	if err != nil {
		t.Fatal(err)
	}
	if of := h.causes("erasure"); len(of) > 0 {
		t.Errorf("in its grace period: %+v", of)
	}
	h.clock.Advance(made.ExecutableAt.Sub(h.clock.Now()))
	if got := h.want("erasure", "due order", "execute", "open"); got.Sample[0] != made.ID ||
		!got.Since.Equal(made.ExecutableAt.Truncate(time.Second)) {
		t.Errorf("%+v", got)
	}
	h.unerasable = fmt.Errorf("the disk has %s", secret)
	if _, err := h.erasures.Execute(t.Context(), h.tenant, made.ID, false); err != nil {
		t.Fatal(err)
	}
	h.settle()
	of := h.causes("erasure")
	if len(of) != 1 || !strings.HasPrefix(of[0].Cause, "failed ") || !strings.HasSuffix(of[0].Cause, " order") ||
		of[0].Sample[0] != made.ID {
		t.Errorf("%+v", of)
	}
	h.unerasable = nil
	h.pass(time.Hour, time.Minute)
	if of := h.causes("erasure"); len(of) > 0 {
		t.Errorf("it is erased, and %+v", of)
	}
}
