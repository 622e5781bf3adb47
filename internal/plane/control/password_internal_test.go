package control

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/storage/testopen"
)

func TestHasherBoundsWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHasher(0)
		ctx, cancel := context.WithCancel(t.Context())
		for range cap(h.slots) {
			if err := h.acquire(ctx); err != nil {
				t.Fatal(err)
			}
		}
		waiters := make(chan error, maxWaiting)
		for range maxWaiting {
			go func() { waiters <- h.acquire(ctx) }()
		}
		synctest.Wait()
		if err := h.acquire(ctx); j17.CodeOf(err) != j17.CodeUnavailable {
			t.Errorf("one more than may wait: %v", err)
		}

		h.release()
		if err := <-waiters; err != nil {
			t.Errorf("a slot became free, yet: %v", err)
		}
		cancel()
		for range maxWaiting - 1 {
			if err := <-waiters; j17.CodeOf(err) != j17.CodeUnavailable {
				t.Errorf("the context has ended, yet: %v", err)
			}
		}
		if n := h.waiting.Load(); n != 0 {
			t.Errorf("%d still count as waiting", n)
		}
	})
}

func TestHashesOfAnotherCostAndDamagedOnes(t *testing.T) {
	h := newHasher(0)
	// A test vector of the reference implementation, which spends more memory than we do.
	const foreign = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	ok, err := h.verify(t.Context(), foreign, "password")
	if err != nil || !ok {
		t.Errorf("verify = %v, %v", ok, err)
	}
	for _, damaged := range []string{
		"", "$", "plain", strings.Replace(foreign, "argon2id", "argon2i", 1),
		strings.Replace(foreign, "v=19", "v=16", 1), strings.Replace(foreign, "t=2", "t=0", 1),
		strings.Replace(foreign, "p=1", "p=0", 1), strings.Replace(foreign, "m=", "n=", 1),
		strings.Replace(foreign, "$c29", "$!", 1), foreign + "!", foreign[:strings.LastIndex(foreign, "$")+1],
	} {
		ok, err := h.verify(t.Context(), damaged, "password")
		if ok || j17.CodeOf(err) != j17.CodeInternal {
			t.Errorf("verify(%q) = %v, %v", damaged, ok, err)
		}
		if damaged != "" && len(damaged) > 5 && strings.Contains(err.Error(), damaged) {
			t.Errorf("the error repeats the hash: %v", err)
		}
	}
}

// TestAPasswordThatChangesWhileItIsChecked holds a check up until the password is another one.
func TestAPasswordThatChangesWhileItIsChecked(t *testing.T) {
	r, err := Open(t.Context(), Options{Store: testopen.Open(t, clock.System{}), Clock: clock.System{}})
	if err != nil {
		t.Fatal(err)
	}
	op, err := r.Operators.Create(t.Context(), NewOperator{
		Email: "a@example.com", Password: "the first password", Role: RolePlatformAdmin,
	})
	if err != nil {
		t.Fatal(err)
	}
	verified, err := r.Operators.VerifyPassword(t.Context(), op.Email, "the first password")
	if err != nil {
		t.Fatal(err)
	}
	hash, err := r.Operators.newPassword(t.Context(), "the second password")
	if err != nil {
		t.Fatal(err)
	}
	for range cap(r.items.hasher.slots) {
		if err := r.items.hasher.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	outcome := make(chan error)
	go func() {
		_, err := r.Operators.VerifyPassword(t.Context(), op.Email, "the first password")
		outcome <- err
	}()
	for r.items.hasher.waiting.Load() == 0 {
		runtime.Gosched()
	}
	if _, err := r.Operators.amend(t.Context(), op.ID, func(rec *operatorRecord) (Record, error) {
		rec.Password, rec.TokensFrom = hash, r.Operators.afterNow(rec)
		return Record{Action: "operator.set_password"}, nil
	}); err != nil {
		t.Fatal(err)
	}
	for range cap(r.items.hasher.slots) {
		r.items.hasher.release()
	}
	if err := <-outcome; j17.CodeOf(err) != j17.CodeUnauthorized {
		t.Errorf("the former password was accepted: %v", err)
	}
	if err := r.Operators.ReplacePassword(
		t.Context(), verified, "the third password",
	); j17.CodeOf(err) != j17.CodeUnauthorized {
		t.Errorf("a change that was allowed by the former password: %v", err)
	}
}
