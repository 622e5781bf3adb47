package auth_test

import (
	"net/netip"
	"testing"
	"time"

	"j17/internal/auth"
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
