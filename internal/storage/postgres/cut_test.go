package postgres_test

import (
	"testing"

	"j17/internal/storage/postgres"
	"j17/internal/storage/postgres/pgtest"
)

// TestCutCommits cuts connections during commits, the look-up of their outcomes, and the reads before them. Callers do
// not notice it, since each outcome can be found out.
func TestCutCommits(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	proxy := pgtest.NewProxy(t, server)
	s := open(t, postgres.Options{
		Address: server.Address(proxy.Host()), AllowSingle: true, Connections: postgres.LeastConnections,
	})
	l := newLoad(t, s)
	l.start(8, 2)
	l.more(50)
	points := []pgtest.Point{pgtest.BeforeRequest, pgtest.BeforeReply, pgtest.DuringReply, pgtest.AfterReply}
	texts := []string{
		"UPDATE tenants x SET ver", "UPDATE tenants x SET ver", "UPDATE tenants SET term", "WITH ORDINALITY", "beat/",
	}
	for i := range rounds(40, 200) {
		text := texts[i%len(texts)]
		done := proxy.CutNext(points[i/len(texts)%len(points)], text)
		if text == "UPDATE tenants SET term" || text == "beat/" {
			<-proxy.CutNext(pgtest.BeforeReply, "UPDATE tenants x SET ver") // then it is needed
		}
		select {
		case <-done:
		case <-t.Context().Done():
			t.Fatalf("round %d: nothing with %q was cut", i, text)
		}
	}
	l.more(50)
	units := l.check(server)
	acked, busy, unknown := l.counts()
	t.Logf("%d units, %d acknowledged, %d busy, %d unknown, the slowest took %s", units, acked, busy, unknown, l.slowest)
	if busy+unknown > 0 || units != acked {
		t.Error("callers were told that they cannot know")
	}
	if d := s.Figures().Doubts; d.Committed == 0 || d.NotWritten == 0 || d.Unknown > 0 {
		t.Errorf("the commits whose outcome was looked up: %+v", d)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
