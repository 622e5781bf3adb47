package control

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"j17"
)

func TestHasherBoundsWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHasher()
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
	h := newHasher()
	// A test vector of the reference implementation, which spends more memory than we do.
	const foreign = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	ok, err := h.verify(t.Context(), foreign, "password")
	if err != nil || !ok {
		t.Errorf("verify = %v, %v", ok, err)
	}
	for _, damaged := range []string{
		"", "$", "plain", strings.Replace(foreign, "argon2id", "argon2i", 1), strings.Replace(foreign, "v=19", "v=16", 1), strings.Replace(foreign, "t=2", "t=0", 1),
		strings.Replace(foreign, "p=1", "p=0", 1), strings.Replace(foreign, "m=", "n=", 1), strings.Replace(foreign, "$c29", "$!", 1), foreign + "!", foreign[:strings.LastIndex(foreign, "$")+1],
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
