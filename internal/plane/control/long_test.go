//go:build !race

package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
	"j17/internal/storage/storetest"
)

// TestSpecsMoveToTheirEnvironments opens a registry whose specs are where they used to be. However often the program
// ends while it moves them, in whatever moment, each environment has all of its versions or none, and in the end all
// have all.
func TestSpecsMoveToTheirEnvironments(t *testing.T) {
	large := strings.Repeat(" ", 3<<20)
	for writes := 0; ; writes++ {
		s := start(t)
		app, other := s.instance(t, "app"), s.instance(t, "other")
		putFormer(t, s, uuidOf(t, s, "app"), j17.Prod, "one", "two"+large, "three"+large)
		putFormer(t, s, uuidOf(t, s, "app"), j17.Test, "elsewhere")
		putFormer(t, s, uuidOf(t, s, "other"), j17.Prod, "other")
		var log bytes.Buffer
		options := control.Options{
			Store: &ending{s.store, writes}, Clock: s.clock, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}
		_, err := control.Open(t.Context(), options)
		ended := err != nil
		if ended {
			head, err := s.store.Get(t.Context(), j17.TenantOf(app.ID, j17.Prod), "spec.head", "current")
			if !errors.Is(err, store.ErrNotFound) && (err != nil || string(head.Value) != `{"version":3}`) {
				t.Fatalf("after %d writes the environment has the version %s: %v", writes, head.Value, err)
			}
			options.Store = s.store
		}
		r, err := control.Open(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}

		all, err := r.Specs.History(t.Context(), app.ID, j17.Prod, 0, 10)
		if err != nil || len(all) != 3 || all[0].Version != 3 || all[2].ID != "dep_1" {
			t.Fatalf("after %d writes: %+v, %v", writes, all, err)
		}
		if current, err := r.Specs.Current(t.Context(), app.ID, j17.Prod); err != nil ||
			string(current.Source) != "three"+large || current.Fence.Rev == 0 {
			t.Fatalf("after %d writes: %v", writes, err)
		}
		if got, err := r.Specs.Version(t.Context(), app.ID, j17.Prod, 1); err != nil || string(got.Source) != "one" {
			t.Fatalf("after %d writes: %+v, %v", writes, got, err)
		}
		for _, at := range []struct {
			id  string
			env j17.Environment
		}{{app.ID, j17.Test}, {other.ID, j17.Prod}} {
			if got, err := r.Specs.Current(t.Context(), at.id, at.env); err != nil || got.Version != 1 {
				t.Fatalf("after %d writes: %+v, %v", writes, got, err)
			}
		}
		if n := former(t, s); n != 0 {
			t.Fatalf("after %d writes %d items are left where specs used to be", writes, n)
		}
		if !ended {
			if !strings.Contains(log.String(), "done=3 environments=3") {
				t.Errorf("nothing is said of it: %s", log.String())
			}
			return
		}
	}
}

// TestAuditRecordsMoveIntoTheLog opens a registry whose audit records are where they used to be. However often the
// program ends while it moves them, each is there once and in order.
func TestAuditRecordsMoveIntoTheLog(t *testing.T) {
	const records = 1100
	for writes := 0; ; writes++ {
		s := start(t)
		app := s.instance(t, "app")
		begin := s.clock.Now().Add(-records * time.Second).Truncate(time.Second).UTC()
		for part := range slices.Chunk(slices.Collect(func(yield func(int) bool) {
			for i := range records {
				if !yield(i) {
					return
				}
			}
		}), 300) {
			var sides []store.Side
			for _, i := range part {
				at := begin.Add(time.Duration(i) * time.Second)
				rec := `{"uuid":"u","id":"aud_` + at.Format("150405") + `","at":"` + at.Format(time.RFC3339) + `","action":"key.create","actor":{"kind":"server"},"instance":"` + app.ID + `","outcome":"done"}`
				key := fmt.Sprintf("%05d", records-i) // the newest first
				sides = append(sides, store.Side{Op: store.Put, Space: "control.audit", Key: key, Value: []byte(rec)},
					store.Side{
						Op: store.Put, Space: "control.audit_by_instance", Key: app.ID + "/" + key, Value: []byte(rec),
					})
			}
			if err := s.store.Write(t.Context(), j17.System, sides); err != nil {
				t.Fatal(err)
			}
		}
		_, err := control.Open(t.Context(), control.Options{Store: &ending{s.store, writes}, Clock: s.clock})
		ended := err != nil
		s.restart(t)

		for _, q := range []control.AuditQuery{{Action: "key"}, {Instance: app.ID, Action: "key"}} {
			var got []string
			for rec, err := range s.Audit.Export(t.Context(), q) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, rec.ID)
			}
			var all []string
			for i := range records {
				all = append(all, "aud_"+begin.Add(time.Duration(records-1-i)*time.Second).Format("150405"))
			}
			if diff := cmp.Diff(all, got); diff != "" {
				t.Fatalf("after %d writes (-want +got):\n%s", writes, diff)
			}
		}
		got, _, err := s.Audit.List(
			t.Context(), control.AuditQuery{
				Instance: app.ID, From: begin.Add(10 * time.Second), To: begin.Add(12 * time.Second),
			}, 10,
		)
		if err != nil || len(got) != 2 || !got[0].At.Equal(begin.Add(11*time.Second)) {
			t.Errorf("two seconds of it: %+v, %v", got, err)
		}
		if text, err := storetest.Dump(t.Context(), s.store, j17.System); err != nil ||
			strings.Contains(text, "control.audit") {
			t.Errorf("something is left where records used to be: %v", err)
		}
		if !ended {
			return
		}
	}
}

// TestReplicasThatAreBehind catch up in parts, and start over only where their position is none of this headnode's.
func TestReplicasThatAreBehind(t *testing.T) {
	s := start(t)
	r, _ := replica(t, s)
	catchUp(t, s.Registry, r)
	app, err := s.Instances.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	source := strings.Repeat(" ", 1<<20)
	for i := range 20 {
		if _, err := s.Specs.Put(t.Context(), control.Deployment{
			Instance: app.ID, Environment: j17.Prod, Source: []byte(fmt.Sprint(i, source)), Base: i,
		}); err != nil {
			t.Fatal(err)
		}
	}
	s.restart(t)
	rounds := 0
	for rep := catchUp(t, s.Registry, r); len(rep.Changes) > 0; rep = catchUp(t, s.Registry, r) {
		if rounds++; rep.Whole {
			t.Fatal("it was sent everything")
		}
	}
	if rounds < 2 {
		t.Error("20 MiB were sent at once")
	}
	if got, err := r.Specs.Current(t.Context(), app.ID, j17.Prod); err != nil || got.Version != 20 ||
		string(got.Source) != "19"+source {
		t.Errorf("version %d: %v", got.Version, err)
	}
	position, err := r.Replication.Position(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := start(t)
	for range 100 { // its log is longer
		if err := other.Audit.Add(t.Context(), control.Record{Action: "some.thing"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, position := range []string{
		"", "x", "x-1", position + "0", "-1", strings.TrimRight(position, "0123456789"), "1-0000000000000-0",
		"99999999999999999999-1",
	} {
		if got, err := atOnce(t, s.Registry, position); err != nil || !got.Whole {
			t.Errorf("position %q: %v %v", position, got.Whole, err)
		}
	}
	if got, err := other.Replication.Next(t.Context(), "one", position); err != nil || !got.Whole {
		t.Errorf("a position of another headnode: %v %v", got.Whole, err)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	s := start(t)
	for i := range 5000 {
		s.Faults.Report(control.Fault{ID: fmt.Sprint("flood_", i)})
	}
	kept := 0
	for i := range 5000 {
		if _, err := s.Faults.ByID(t.Context(), fmt.Sprint("flood_", i)); err == nil {
			kept++
		}
	}
	if kept != 600 {
		t.Errorf("%d faults of a flood are kept", kept)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for minute := range 18 {
		s.clock.Advance(time.Minute)
		for i := range 600 {
			s.Faults.Report(control.Fault{ID: fmt.Sprintf("err_%d_%d", minute, i)})
		}
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if minute == 9 {
			s.restart(t)
		}
	}
	count := func(prefix string) (n int) {
		for after := ""; ; {
			items, err := s.store.Scan(
				t.Context(), j17.System, "control.faults", store.Prefix(prefix).After(after), 1000,
			)
			if err != nil {
				t.Fatal(err)
			}
			n += len(items)
			if len(items) < 1000 {
				return n
			}
			after = items[len(items)-1].Key
		}
	}
	if all, oldest := count(""), count("flood_"); all != 10_000 || oldest != 0 {
		t.Errorf("%d faults are kept, %d of them the oldest", all, oldest)
	}
	if _, err := s.Faults.ByID(t.Context(), "err_17_599"); err != nil {
		t.Error(err)
	}
}
