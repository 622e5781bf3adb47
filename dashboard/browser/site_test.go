//go:build !race

package browser_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/server"
)

// site is a server with the instance "app", and whoever may do everything on it.
type site struct {
	tb testing.TB
	// options are those of the server, which begins again with them.
	options server.DevOptions
	dev     *server.Dev
	ready   server.Ready
	// stop ends the server and waits until it has.
	stop func()
	// origin is that of the dashboard, such as http://control.localhost:4711; address is where the server listens.
	origin, address string
	token           string
}

// user is who writes events.
var user = uid("user")

// uid returns the UUID that a name stands for.
func uid(name string) string {
	h := sha256.Sum256([]byte(name))
	h[6], h[8] = h[6]&0x0f|0x40, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// newSite starts a server with a spec of testdata in each environment, "" for none.
func newSite(tb testing.TB, specName string) *site {
	tb.Helper()
	file := ""
	if specName != "" {
		file = filepath.Join("testdata", specName)
	}
	return startSite(tb, server.DevOptions{
		Options: server.Options{
			Dir: tb.TempDir(), Listen: "127.0.0.1:0", InternalListen: "127.0.0.1:0", Version: "test",
			Clock:  clock.System{},
			Logger: slog.New(slog.DiscardHandler), PrivateListeners: true, DrainTime: time.Second,
		},
		SpecFile: file,
	})
}

func startSite(tb testing.TB, o server.DevOptions) *site {
	tb.Helper()
	s := &site{tb: tb, options: o}
	s.begin()
	tb.Cleanup(func() { s.stop() })
	return s
}

// begin starts the server, with what its folder has.
func (s *site) begin() {
	s.tb.Helper()
	dev, err := server.OpenDev(s.tb.Context(), s.options)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.dev, s.ready = dev, dev.Ready()
	s.origin = s.ready.URLs["control"]
	s.address = strings.TrimPrefix(s.origin, "http://control.")
	s.options.Listen = strings.Replace(s.address, "localhost", "127.0.0.1", 1)
	running, end := context.WithCancel(context.WithoutCancel(s.tb.Context()))
	ended := make(chan error, 1)
	go func() { ended <- dev.Run(running) }()
	s.stop = func() {
		s.stop = func() {}
		end()
		if err := <-ended; err != nil {
			s.tb.Errorf("the server: %v", err)
		}
		if err := dev.Close(); err != nil {
			s.tb.Errorf("the server's store: %v", err)
		}
	}
}

// reply is an answer of the server.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// into reads the body of an answer into v.
func (r reply) into(tb testing.TB, v any) {
	tb.Helper()
	if err := json.Unmarshal(r.body, v); err != nil {
		tb.Fatalf("%v in %d %s", err, r.status, r.body)
	}
}

// call sends a request to a host of the server ("control", "app", "app-staging"), with a bearer's token, "" for none.
func (s *site) call(method, host, path, token string, body any) reply {
	s.tb.Helper()
	var raw []byte
	if body != nil {
		var ok bool
		if raw, ok = body.([]byte); !ok {
			var err error
			if raw, err = json.Marshal(body); err != nil {
				s.tb.Fatal(err)
			}
		}
	}
	r, err := http.NewRequestWithContext(
		s.tb.Context(), method, "http://"+host+"."+s.address+path, bytes.NewReader(raw),
	)
	if err != nil {
		s.tb.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	// Go asks a resolver for names below localhost, which may not know them.
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, s.options.Listen)
		},
	}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		s.tb.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.tb.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		s.tb.Fatal(err)
	}
	return reply{answer.StatusCode, answer.Header, text}
}

// control sends a request to the control host in the name of the first operator. Whatever is no success ends the test.
func (s *site) control(method, path string, body any) reply {
	s.tb.Helper()
	if s.token == "" {
		s.token = s.login(s.ready.Operator.Email, s.ready.Operator.Password)
	}
	r := s.call(method, "control", path, s.token, body)
	if r.status >= 300 {
		s.tb.Fatalf("%s %s: %d %s", method, path, r.status, r.body)
	}
	return r
}

// login returns a token of an operator's.
func (s *site) login(email, password string) string {
	s.tb.Helper()
	r := s.call("POST", "control", "/api/login", "", map[string]string{"email": email, "password": password})
	var in struct{ Token string }
	if r.into(s.tb, &in); in.Token == "" {
		s.tb.Fatalf("%s does not get in: %d %s", email, r.status, r.body)
	}
	return in.Token
}

// ops reads something of the administration of prod, as control does.
func (s *site) ops(path string) reply {
	s.tb.Helper()
	return s.control("GET", "/api/instances/"+s.ready.Instance.ID+"/ops/prod"+path, nil)
}

// write writes an event to prod, of an aggregate such as "counter/"+id, and returns its position. data is JSON.
func (s *site) write(aggregate, event, data string) string {
	s.tb.Helper()
	return s.writeIn(j17.Prod, aggregate, event, data)
}

func (s *site) writeIn(env j17.Environment, aggregate, event, data string) string {
	s.tb.Helper()
	host := "app"
	if env != j17.Prod {
		host += "-" + string(env)
	}
	body := fmt.Sprintf(`{"data": %s, "metadata": {"actor": {"type": "user", "id": %q}}}`, data, user)
	r := s.call("POST", host, "/"+aggregate+"/"+event, s.ready.Keys[env].Write, []byte(body))
	if r.status != http.StatusCreated {
		s.tb.Fatalf("%s %s: %d %s", aggregate, event, r.status, r.body)
	}
	var stored struct {
		StreamID string `json:"stream_id"`
	}
	r.into(s.tb, &stored)
	return stored.StreamID
}

// batch writes events to prod in one request. Each is JSON with its type and data.
func (s *site) batch(aggregate string, events []string) {
	s.tb.Helper()
	body := fmt.Sprintf(
		`{"events": [%s], "metadata": {"actor": {"type": "user", "id": %q}}}`, strings.Join(events, ","), user,
	)
	r := s.call("POST", "app", "/"+aggregate, s.ready.Keys[j17.Prod].Write, []byte(body))
	if r.status != http.StatusCreated {
		s.tb.Fatalf("%s: %d %s", aggregate, r.status, r.body)
	}
}

// raise writes an event counter.was_raised for each of the numbers, and returns their positions.
func (s *site) raise(id string, by ...string) []string {
	s.tb.Helper()
	var all []string
	for _, n := range by {
		all = append(all, s.write("counter/"+id, "was_raised", fmt.Sprintf(`{"by": %s, "why": "raised by %s"}`, n, n)))
	}
	return all
}

// advance moves the clock of the server.
func (s *site) advance(by string) {
	s.tb.Helper()
	s.control("GET", "/api/me", nil) // there is a token now
	if r := s.call(
		"POST", "app", "/_dev/clock/advance", s.token, map[string]string{"by": by},
	); r.status != http.StatusOK {
		s.tb.Fatalf("the clock: %d %s", r.status, r.body)
	}
}

// operator makes an operator with a role on the instance.
func (s *site) operator(role string) server.Login {
	s.tb.Helper()
	who := server.Login{Email: role + "@example.com", Password: "a long password of " + role}
	s.control("POST", "/api/operators", map[string]any{
		"email": who.Email, "password": who.Password, "role": role, "instances": []string{s.ready.Instance.ID},
	})
	return who
}

// page is the path of a page of prod.
func page(path string) string { return "/ui/i/app/prod/" + path }

// staging is the path of a page of staging.
func staging(path string) string { return "/ui/i/app/staging/" + path }

// specText is the spec of testdata.
func specText(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "spec.json"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// escaped is a text as part of a query.
func escaped(text string) string { return url.QueryEscape(text) }
