package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTheClockCanBeMoved moves a server's clock, restarts the server and looks at the time of what is written.
func TestTheClockCanBeMoved(t *testing.T) {
	p, specFile := started(t, plainSpec)
	before := time.Now()
	var login struct {
		Token string `json:"token"`
	}
	body := `{"email":"` + p.ready.Operator.Email + `","password":"` + p.ready.Operator.Password + `"}`
	if s := requested(t, p, "POST", "control", "/api/login", "", body, &login); s != http.StatusOK {
		t.Fatal(s)
	}
	for _, tc := range []struct {
		by   string
		want int
	}{
		{"-1h", 400},
		{"soon", 400},
		{"1000000h", 400},
		{"", 400},
		{"d", 400},
		{"3651d", 400},
		{"99999999999999999d", 400},
		{"0d", 200},
		{"25h", 200},
	} {
		if s := requested(
			t, p, "POST", "prod", "/_dev/clock/advance", login.Token, `{"by":"`+tc.by+`"}`, nil,
		); s != tc.want {
			t.Errorf("%s: %d", tc.by, s)
		}
	}
	if s := requested(
		t, p, "POST", "prod", "/_dev/clock/advance", login.Token, `{"by":"1h"}`, nil,
	); s != http.StatusUnauthorized {
		t.Errorf("a token of a day ago: %d", s)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p, err := startDev(t, filepath.Dir(specFile), specFile, "--data", filepath.Join(filepath.Dir(specFile), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.end(syscall.SIGTERM) })
	key := p.ready.Keys["prod"].Write
	if s := requested(t, p, "POST", "prod", "/note/global/was_written", key, `{"data":{},"metadata":{"actor":{"type":"user","id":"global"}}}`, nil); s != http.StatusCreated {
		t.Fatal(s)
	}
	var note struct {
		Data struct {
			CreatedAt int64 `json:"created_at"`
		} `json:"data"`
	}
	if s := requested(t, p, "GET", "prod", "/note/global", key, "", &note); s != http.StatusOK {
		t.Fatal(s)
	}

	if at := time.Unix(note.Data.CreatedAt, 0); at.Before(before.Add(25 * time.Hour).Truncate(time.Second)) {
		t.Errorf("written at %v", at)
	}
}

// requested sends a JSON request to one of the server's hosts and returns the status.
func requested(t *testing.T, p *process, method, site, path, token, body string, into any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = strings.TrimPrefix(p.ready.URLs[site], "http://")
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // decoded or not needed
	if into != nil {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode
}
