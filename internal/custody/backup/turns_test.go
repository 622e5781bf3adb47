package backup_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"j17"
	"j17/internal/custody/backup"
)

// TestOneOfAnInstance checks that an instance whose backup does not come to an end keeps no other from theirs.
func TestOneOfAnInstance(t *testing.T) {
	reached, goOn := make(chan struct{}), make(chan struct{})
	reach := sync.OnceFunc(func() { close(reached) })
	h := newHouse(t, nil)
	head := h.options.Head
	h.options.Head = func(ctx context.Context, of j17.Tenant, at j17.StreamID) (uint64, [32]byte, error) {
		if of == h.prod {
			reach()
			select {
			case <-goOn:
			case <-ctx.Done():
			}
		}
		return head(ctx, of, at)
	}
	h.open(t)
	h.run(t)
	other, err := h.registry.Instances.Create(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	staging := j17.TenantOf(h.app.ID, j17.Staging)
	first, err := h.Create(t.Context(), h.prod, "")
	if err != nil {
		t.Fatal(err)
	}
	<-reached
	second, err := h.Create(t.Context(), staging, "")
	if err != nil {
		t.Fatal(err)
	}
	if b := h.make(t, j17.TenantOf(other.ID, j17.Prod), ""); b.Status != backup.Completed {
		t.Errorf("%+v", b)
	}
	if b, err := h.Get(t.Context(), staging, second.ID); err != nil || b.Status != backup.Running {
		t.Errorf("%+v %v", b, err)
	}
	close(goOn)
	for of, id := range map[j17.Tenant]string{h.prod: first.ID, staging: second.ID} {
		if b := h.ended(t, of, id); b.Status != backup.Completed {
			t.Errorf("%+v", b)
		}
	}
}

// away gives an instance an object store that takes connections and never answers.
func (h *house) away(t *testing.T, instance string) net.Listener {
	t.Helper()
	store, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := h.Change(t.Context(), instance, func(s *backup.Settings) {
		s.S3 = &backup.S3{
			Endpoint: "http://" + store.Addr().String(), Bucket: "bucket", Region: "us-east-1", AccessKey: "key",
			SecretKey: "secret",
		}
	}); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestSlowStoresHoldUpNobodyElse has two instances whose object stores do not answer take both turns: after a minute a
// third one has its own.
func TestSlowStoresHoldUpNobodyElse(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	var others []j17.Tenant
	for _, name := range []string{"b", "c", "d"} {
		i, err := h.registry.Instances.Create(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, j17.TenantOf(i.ID, j17.Prod))
		if name != "d" {
			h.away(t, i.ID)
		}
	}
	var slow []backup.Backup
	for range 2 { // the second of each waits, and has no turn before somebody who had none
		for _, of := range others[:2] {
			b, err := h.Create(t.Context(), of, "")
			if err != nil {
				t.Fatal(err)
			}
			slow = append(slow, b)
		}
	}
	h.await(t, func() bool { return h.Stats().Running == 2 })
	h.write(t, others[2], "one", "first")
	quick, err := h.Create(t.Context(), others[2], "")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := h.Get(t.Context(), others[2], quick.ID); err != nil || b.Status != backup.Running ||
		h.Stats().Running != 2 {
		t.Errorf("%+v, %v", b, err)
	}

	h.clock.Advance(time.Minute)
	if b := h.ended(t, others[2], quick.ID); b.Status != backup.Completed {
		t.Errorf("%+v", b)
	}
	for i, b := range slow {
		if err := h.Delete(t.Context(), others[i%2], b.ID); err != nil {
			t.Error(err)
		}
	}
}

// stalling is a house whose backups say that they have begun, and wait until goOn is closed.
func stalling(t *testing.T) (h *house, reached chan j17.Tenant, goOn chan struct{}) {
	t.Helper()
	reached, goOn = make(chan j17.Tenant, 8), make(chan struct{})
	h = newHouse(t, nil)
	head := h.options.Head
	h.options.Head = func(ctx context.Context, of j17.Tenant, at j17.StreamID) (uint64, [32]byte, error) {
		reached <- of
		<-goOn
		return head(ctx, of, at)
	}
	h.open(t)
	return h, reached, goOn
}

// TestSlowStoresLeaveTheFolder has the object stores of more instances than may use one at a time not answer: two
// instances whose backups go to the folder have theirs at the same time nevertheless, and the store that waited has its
// turn when another one has ended.
func TestSlowStoresLeaveTheFolder(t *testing.T) {
	h, reached, goOn := stalling(t)
	h.run(t)
	var slow, quick []j17.Tenant
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		i, err := h.registry.Instances.Create(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if of := j17.TenantOf(i.ID, j17.Prod); len(slow) < 4 {
			h.away(t, i.ID)
			slow = append(slow, of)
		} else {
			quick = append(quick, of)
		}
	}
	ids := map[j17.Tenant]string{}
	create := func(all []j17.Tenant) {
		t.Helper()
		for _, of := range all {
			b, err := h.Create(t.Context(), of, "")
			if err != nil {
				t.Fatal(err)
			}
			ids[of] = b.ID
		}
	}

	// As many as may, and one that waits.
	create(slow)
	h.await(t, func() bool { return h.Stats().Running == 2 })
	h.clock.Advance(time.Minute)
	h.await(t, func() bool { return h.Stats().Running >= 3 })
	h.clock.Advance(time.Minute)
	create(quick)
	h.await(t, func() bool { st := h.Stats(); return st.Running == 5 && st.Waiting == 1 })
	if first, second := <-reached,
		<-reached; min(first, second) != min(quick[0], quick[1]) || max(first, second) != max(quick[0], quick[1]) {
		t.Errorf("%s and %s have begun", first, second)
	}
	close(goOn)
	for _, of := range quick {
		if b := h.ended(t, of, ids[of]); b.Status != backup.Completed {
			t.Errorf("%+v", b)
		}
	}

	// What waits has the place of one that ends.
	for i, of := range slow {
		if err := h.Delete(t.Context(), of, ids[of]); err != nil {
			t.Error(err)
		}
		if i == 0 {
			h.await(t, func() bool { st := h.Stats(); return st.Running == 3 && st.Waiting == 0 })
		}
	}
}

// TestTurns has an instance with several backups to be made wait behind another one that came later.
func TestTurns(t *testing.T) {
	h, reached, goOn := stalling(t)
	of := []j17.Tenant{h.prod}
	for _, name := range []string{"b", "c"} {
		i, err := h.registry.Instances.Create(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		of = append(of, j17.TenantOf(i.ID, j17.Prod))
	}
	last := map[j17.Tenant]string{}
	for _, t2 := range []j17.Tenant{of[0], of[0], of[1], of[1], of[2]} {
		b, err := h.Create(t.Context(), t2, "")
		if err != nil {
			t.Fatal(err)
		}
		last[t2] = b.ID
	}
	h.run(t)
	first, second := <-reached, <-reached
	if min(first, second) != min(of[0], of[1]) || max(first, second) != max(of[0], of[1]) {
		t.Errorf("%s and %s have begun", first, second)
	}
	goOn <- struct{}{}
	if third := <-reached; third != of[2] {
		t.Errorf("%s has the next turn, want %s", third, of[2])
	}
	close(goOn)
	for t2, id := range last {
		if b := h.ended(t, t2, id); b.Status != backup.Completed {
			t.Errorf("%+v", b)
		}
	}
}

// TestSlowStoresTakeTurns has the object stores of more instances than may use one at a time take long: after a while
// one of them waits again, and the one that has waited goes to its own. All of them can be cancelled, whether they wait
// or not.
func TestSlowStoresTakeTurns(t *testing.T) {
	h := newHouse(t, nil)
	h.run(t)
	var scopes []j17.Tenant
	ids := map[j17.Tenant]string{}
	came := make(chan j17.Tenant, 64)
	for _, name := range []string{"a", "b", "c", "d"} {
		i, err := h.registry.Instances.Create(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		of := j17.TenantOf(i.ID, j17.Prod)
		scopes = append(scopes, of)
		place := h.away(t, i.ID)
		go func() {
			for {
				conn, err := place.Accept()
				if err != nil {
					return
				}
				came <- of
				defer func() { _ = conn.Close() }()
			}
		}()
	}
	for _, of := range scopes {
		b, err := h.Create(t.Context(), of, "")
		if err != nil {
			t.Fatal(err)
		}
		ids[of] = b.ID
	}

	// As many as may, and one that waits until the turn of another one is over.
	h.await(t, func() bool { return h.Stats().Running == 2 })
	h.clock.Advance(time.Minute)
	h.await(t, func() bool { st := h.Stats(); return st.Running == 3 && st.Waiting == 1 })
	begun := map[j17.Tenant]bool{}
	reached := func(n int) {
		t.Helper()
		h.await(t, func() bool {
			select {
			case of := <-came:
				begun[of] = true
			default:
			}
			return len(begun) == n
		})
	}
	reached(3)
	h.clock.Advance(10 * time.Minute)
	reached(4)
	h.await(t, func() bool { st := h.Stats(); return st.Running == 3 && st.Waiting == 1 })
	for _, of := range scopes {
		if b, err := h.Get(t.Context(), of, ids[of]); err != nil || b.Status != backup.Running {
			t.Errorf("%+v, %v", b, err)
		}
	}
	for _, of := range scopes {
		if err := h.Delete(t.Context(), of, ids[of]); err != nil {
			t.Error(err)
		}
	}
	if st := h.Stats(); st.Running+st.Waiting > 0 {
		t.Errorf("%+v", st)
	}
}
