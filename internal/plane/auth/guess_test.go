package auth_test

import (
	"net/netip"
	"testing"
	"time"

	"j17/internal/plane/auth"
)

func TestGuesses(t *testing.T) {
	g := auth.NewGuesses(3)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	client, neighbour := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	for range 10 { // right ones do not count
		if g.Take(client, now) > 0 {
			t.Fatal("a right guess is held up")
		}
		g.Right(client)
	}
	for range 3 {
		if g.Take(client, now) > 0 {
			t.Fatal("held up too early")
		}
	}
	if wait := g.Take(neighbour, now); wait <= 0 || wait > 20*time.Second {
		t.Errorf("a wait of %s in the same network", wait)
	}
	if wait := g.Take(netip.MustParseAddr("2001:db8:0:1::1"), now); wait > 0 {
		t.Error("another network is held up")
	}
	if wait := g.Take(client, now.Add(20*time.Second)); wait > 0 {
		t.Errorf("still %s after a while", wait)
	}
}

// TestGuessesAfterAClockWasSetBack: a clock that is set back neither opens anything nor closes it for longer than the
// guesses take to come back.
func TestGuessesAfterAClockWasSetBack(t *testing.T) {
	g := auth.NewGuesses(3)
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	right, wrong := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	if g.Take(right, now) > 0 {
		t.Fatal("held up too early")
	}
	g.Right(right)
	for range 3 {
		if g.Take(wrong, now) > 0 {
			t.Fatal("held up too early")
		}
	}
	now = now.Add(-24 * time.Hour)
	if wait := g.Take(right, now); wait > 20*time.Second {
		t.Errorf("who was right has to wait for %s", wait)
	}
	if wait := g.Take(wrong, now); wait <= 0 || wait > 20*time.Second {
		t.Errorf("who was wrong has to wait for %s", wait)
	}
	if wait := g.Take(right, now.Add(time.Minute)); wait > 0 {
		t.Errorf("a minute later there is a wait of %s", wait)
	}
}
