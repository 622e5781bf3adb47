package erasure_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/custody/erasure"
	"j17/internal/storage/store"
)

// requested is a store that removes old bytes at times of its own.
type requested struct {
	store.Store
	f *fixture
	// requests counts the requests, from is the time at which they begin, and known whether they are known.
	requests int
	from     time.Time
	known    bool
	// rounds is how many leases the removal takes, in quarters.
	rounds  int
	renewed chan struct{}
	// claims counts how often tombstones were claimed.
	claims int
}

func (s *requested) RequestPurge(context.Context, j17.Tenant) (string, error) {
	s.requests++
	s.known = true
	return fmt.Sprint("request ", s.requests), nil
}

func (s *requested) PurgeProgress(_ context.Context, request string) (p store.PurgeProgress, err error) {
	switch {
	case !s.known || request != fmt.Sprint("request ", s.requests):
		return p, store.ErrNotFound
	case s.f.Clock.Now().Before(s.from):
		return store.PurgeProgress{Waits: "the rewrite of cells", Until: s.from}, nil
	}
	return store.PurgeProgress{Done: true, Purged: store.Purged{
		Method: "It was written anew.", LSN: "0/3000148", Servers: []string{"db1, primary"},
		Unseen: []string{"db2 could not be asked"}, Remains: "Base backups have it.",
	}}, nil
}

func (s *requested) AwaitPurge(ctx context.Context, request string) (store.PurgeProgress, error) {
	p, err := s.PurgeProgress(ctx, request)
	for ; p.Done && s.rounds > 0; s.rounds-- {
		// The worker waits for the time to renew the lease.
		s.f.Clock.Set(<-s.f.waits)
		select {
		case <-s.renewed:
		case <-ctx.Done():
			return store.PurgeProgress{}, ctx.Err()
		}
	}
	return p, err
}

func (s *requested) ClaimDue(ctx context.Context, t j17.Tenant, c store.Claim) ([]store.Item, error) {
	items, err := s.Store.ClaimDue(ctx, t, c)
	s.claims += len(items)
	return items, err
}

func (s *requested) WriteFreeing(ctx context.Context, t j17.Tenant, side []store.Side, fences ...store.Fence) error {
	err := s.Store.WriteFreeing(ctx, t, side, fences...)
	select {
	case s.renewed <- struct{}{}:
	default:
	}
	return err
}

func (s *requested) open(t *testing.T) {
	t.Helper()
	s.f.open(t, func(under store.Store) erasure.Storage {
		s.Store = under
		return s
	})
}

// TestWaitsForTheStore erases with a store that removes old bytes a day later: tombstones share the request, say what
// they wait for, and hold no claim meanwhile; another process goes on with the same request.
func TestWaitsForTheStore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	until := f.Clock.Now().Add(24 * time.Hour)
	s := &requested{f: f, from: until}
	s.open(t)
	var made []string
	for n := range 3 {
		id := fmt.Sprintf("a11ce000-0000-4000-8000-00000000020%d", n)
		f.write(t, "user/"+id+"/was_created", `{"name":"secret"}`, bob, "")
		made = append(made, f.ask(t, id).ID)
		f.force(t, made[n])
	}
	f.settle(t)
	check := func(requests int) {
		t.Helper()
		if s.requests != requests {
			t.Errorf("there were %d requests, want %d", s.requests, requests)
		}
		for _, id := range made {
			got := f.tombstone(t, id)
			if p := got.Progress; got.Status != "executing" || p == nil || p.WaitsFor != "the rewrite of cells" ||
				p.Until == nil || !p.Until.Equal(until) || got.Error != nil {
				t.Errorf("%+v with the progress %+v", got, got.Progress)
			}
		}
	}
	check(1)

	// Nothing is done until then, whoever comes.
	claims := s.claims
	s.open(t)
	f.Clock.Advance(23 * time.Hour)
	f.settle(t)
	if check(1); s.claims != claims {
		t.Errorf("%d claims while they wait", s.claims-claims)
	}

	// A store that does not know the request is asked anew.
	s.known, s.from = false, until.Add(time.Hour)
	f.Clock.Set(until)
	f.settle(t)
	until = s.from
	check(2)
	f.Clock.Set(until)
	f.settle(t)
	for _, id := range made {
		if got := f.tombstone(t, id); got.Status != "completed" || s.requests != 2 {
			t.Errorf("%+v after %d requests", got, s.requests)
		}
		text, err := f.tombs.Certificate(t.Context(), tenant, id)
		const want = `"method":"It was written anew.","lsn":"0/3000148","servers":["db1, primary"],"unseen":["db2 could not be asked"],"remains":"Base backups have it."`
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// TestPurgeLongerThanTheLease lets a removal of old bytes take several leases. It is not begun again.
func TestPurgeLongerThanTheLease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.waits = make(chan time.Time, 1000)
	s := &requested{f: f, rounds: 10, renewed: make(chan struct{}, 1)}
	s.open(t)
	f.write(t, "user/"+alice+"/was_created", `{}`, alice, "")
	begun := f.Clock.Now()
	got := f.erase(t)
	if took := f.Clock.Now().Sub(begun); got.Status != "completed" || s.requests != 1 || s.claims != 1 ||
		took <= erasure.Lease {
		t.Errorf("%+v after %s, %d requests and %d claims", got, took, s.requests, s.claims)
	}
}

// TestEvidenceOfTheStore certifies what the store of the test says of itself.
func TestEvidenceOfTheStore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "user/"+alice+"/was_created", `{}`, alice, "")
	text, err := f.tombs.Certificate(t.Context(), tenant, f.erase(t).ID)
	if err != nil || !strings.Contains(text, `"method":"The `) || !strings.Contains(text, `"remains":"`) {
		t.Errorf("%s, %v", text, err)
	}
}
