package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17/internal/base/clock"
	"j17/internal/follow/outbound"
)

const secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// late is the machine's clock, an hour behind.
type late struct{ clock.System }

func (l late) Now() time.Time { return l.System.Now().Add(-time.Hour) }

// TestReceivers sends both receivers what a server sends, and what it would not.
func TestReceivers(t *testing.T) {
	t.Run("go", func(t *testing.T) {
		got := make(chan string, 10)
		r, err := newReceiver(secret, func(event json.RawMessage) error {
			got <- string(event)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(r)
		defer s.Close()
		check(t, s.URL, func() []string {
			events := []string{<-got}
			for len(got) > 0 {
				events = append(events, <-got)
			}
			return events
		})
	})
	t.Run("javascript", func(t *testing.T) {
		node, err := exec.LookPath("node")
		if err != nil {
			if os.Getenv("J17_ALL_TOOLS") != "" {
				t.Fatal(err)
			}
			t.Skip("there is no Node.js on this machine")
		}
		file := filepath.Join(t.TempDir(), "secret.txt")
		if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // it ends what would never end
		defer cancel()
		cmd := exec.CommandContext(ctx, node, "receiver.mjs", file, "0")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			cancel()
			_ = cmd.Wait()
		}()
		line, err := bufio.NewReader(said).ReadString('\n')
		port, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
		if err != nil || !ok {
			t.Fatalf("it says %q: %v", line, err)
		}
		printed := bufio.NewReader(out)
		check(t, "http://127.0.0.1:"+port, func() []string {
			line, err := printed.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return []string{strings.TrimSpace(line)}
		})
	})
}

// check sends messages to a receiver, which tells with got which events it has taken.
func check(t *testing.T, url string, got func() []string) {
	t.Helper()
	key := func(s string) []byte {
		k, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "whsec_"))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	now := outbound.New(outbound.Options{Clock: clock.System{}, Private: true})
	before := outbound.New(outbound.Options{Clock: late{}, Private: true})
	ours, other := key(secret), []byte("another key")
	m := outbound.Message{
		URL: url, ID: "dlv_1", ContentType: "application/json", Body: []byte(`{"id":"dlv_1","event":{"n":1}}`),
	}
	for _, c := range []struct {
		about string
		from  *outbound.Sender
		keys  [][]byte
		want  int
	}{
		{"unsigned", now, nil, 401},
		{"signed with another secret", now, [][]byte{other}, 401},
		{"signed an hour ago", before, [][]byte{ours}, 401},
		{"signed", now, [][]byte{ours}, 200},
		{"the same again", now, [][]byte{ours}, 200},
		{"signed after a rotation", now, [][]byte{other, ours}, 200},
	} {
		m.Keys = c.keys
		answer, _ := c.from.Send(t.Context(), m) // a refusal is an error, and has a status
		if answer.Status != c.want {
			t.Errorf("a message that is %s gets %d, not %d", c.about, answer.Status, c.want)
		}
	}
	if events := got(); len(events) != 1 || events[0] != `{"n":1}` {
		t.Errorf("it has taken %q", events)
	}
}
