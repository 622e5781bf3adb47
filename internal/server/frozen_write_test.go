//go:build !race

package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Who and what is in frozen data.
const (
	ada = "0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"
	ben = "1c7fae5f-701b-4a4d-9d64-7b2e3c8f0a21"
	eve = "2d80bf60-812c-4b5e-8e75-8c3f4d901b32"
)

// numbered is the id of one of several aggregates.
func numbered(n int) string { return fmt.Sprintf("7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d%02d", n) }

// by is the body of a write of a user.
func by(user, data string) string {
	return `{"data":` + data + `,"metadata":{"actor":{"type":"user","id":"` + user + `"}}}`
}

func registered(user, email, name, tier string) string {
	return by(user, fmt.Sprintf(`{"email":%q,"name":%q,"tier":%q}`, email, name, tier))
}

// writeFrozen writes the data folder of a version, with all kinds of data that there are, and what a server answers
// about it. Whoever adds a kind of data adds it here.
func writeFrozen(t *testing.T, version string) {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(frozenFolder, version))
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../../examples/wasm/orderlines-c.wasm")
	if err != nil {
		t.Fatal(err)
	}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/closed" {
			w.WriteHeader(http.StatusGone)
		}
	}))
	defer hook.Close()
	source, err := os.ReadFile(filepath.Join(frozenFolder, "spec.json"))
	if err != nil {
		t.Fatal(err)
	}
	spec := strings.ReplaceAll(string(source), `"LISTENER`, `"`+hook.URL)

	// Everything, in prod; a part of it, imported, in staging; and all of it, with its positions, in test.
	t.Chdir(t.TempDir()) // what is stored has names of folders
	h, moveOut := moveIn(t, "data", frozenAt())
	instance := "/api/instances/" + h.ready.Instance.ID
	h.people(instance)
	for _, env := range []string{"prod", "staging", "test"} {
		h.upload(env, "readme.txt", []byte("The first text."))
		h.upload(env, "lines.wasm", module)
		first := strings.Replace(spec, `"tags": {"topic": "$.data.topics"}, `, "", 1)
		if first == spec {
			t.Fatal("the first spec is the second one")
		}
		h.ask("POST", "control", instance+"/spec?environment="+env+"&note=the+first", first)
		if env == "prod" {
			h.events()
			h.workflows()
		}
		h.upload(env, "readme.txt", []byte("The second text."))
		h.ask("POST", env, "/_admin/projections", `{"name":"posted","for_each":"user","sources":{"user":"$key"},"select":{"name":"$.user.name"},"index":["name"]}`)
		if env != "test" { // which is loaded below, when it has no events yet
			h.ask("POST", "control", instance+"/spec?environment="+env, spec)
		}
	}
	h.custody(instance)
	exported := string(h.ask("GET", "prod", "/_admin/export", ""))
	for env, route := range map[string]string{"staging": "import", "test": "cold_start"} {
		if status, answer := h.try("POST", env, "/_admin/"+route, "application/x-ndjson", exported); status >= 300 {
			t.Fatalf("%s: %d %s", route, status, answer)
		}
	}
	h.ask("POST", "control", instance+"/spec?environment=test", spec)
	for _, env := range []string{"prod", "staging", "test"} {
		h.ask("GET", env, "/_audit/checkpoint", "") // whose key is made when somebody asks first
	}
	h.advance("1m")
	moveOut()

	pack(t, ".", file+".tar.gz")
	t.Chdir(t.TempDir())
	raw, err := os.ReadFile(file + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, raw)
	if err := os.WriteFile(file+".txt", []byte(readFrozen(t)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// people makes operators, keys and instances, with a secret that is stored encrypted.
func (h *house) people(instance string) {
	h.t.Helper()
	h.ask("POST", "control", "/api/operators", `{"email":"auditor@example.com","password":"a long password","role":"auditor","instances":["`+h.ready.Instance.ID+`"]}`)
	var key struct{ ID string }
	h.decode(h.ask("POST", "control", instance+"/keys", `{"name":"website","scope":"read","environment":"prod"}`), &key)
	h.ask("POST", "control", instance+"/keys", `{"name":"import","scope":"write","environment":"staging"}`)
	h.ask("DELETE", "control", "/api/keys/"+key.ID, "")
	h.decode(h.ask("POST", "control", "/api/instances", `{"name":"shop","plan":"free"}`), &key)
	h.ask("PUT", "control", "/api/instances/"+key.ID+"/backup_settings",
		`{"keep_last":14,"s3":{"endpoint":"https://s3.example.com","bucket":"b","region":"r","access_key":"a","secret_key":"a secret"}}`)
	h.ask("POST", "control", "/api/instances/"+key.ID+"/spec",
		`{"agent_types":["user"],"aggregate_types":{"note":{"events":{"was_written":{"schema":{},"handler":[{"set":{"target":"","value":"$.data"}}]}}}}}`)
	h.ask("POST", "control", "/api/signing_keys/rotate", "")
	h.try("POST", "control", "/api/login", "application/json", `{"email":"auditor@example.com","password":"a wrong one"}`)
	own := h.token
	h.logIn()
	h.ask("POST", "control", "/api/logout", "")
	h.token = own
}

// events writes events of all kinds.
func (h *house) events() {
	h.t.Helper()
	h.ask("POST", "prod", "/user/"+ada+"/was_registered", registered(ada, "Ada@Example.com", "Ada Ł", "gold"))
	h.ask("POST", "prod", "/user/"+ben+"/was_registered", registered(ben, "ben@example.com", "Ben", "gold"))
	h.ask("POST", "prod", "/user/"+eve+"/was_registered", registered(eve, "eve@example.com", "Eve", "base"))
	for range 3 { // enough for snapshots
		visits := strings.TrimSuffix(strings.Repeat(`{"type":"had_visit"},`, 500), ",")
		h.ask("POST", "prod", "/user/"+ada, `{"events":[`+visits+`],"metadata":{"actor":{"type":"user","id":"`+ada+`"},"skip_occ":true}}`)
	}
	for i, author := range []string{ada, ben, ben} {
		h.ask("POST", "prod", "/comment/"+numbered(i)+"/was_written", by(author, `{"text":"hello","topics":["pumps","🚰"],"n":1.50}`))
	}
	h.ask("POST", "prod", "/desk/main_desk/had_area_set", by(ada,
		`{"fee":2.50,"area":{"type":"Polygon","coordinates":[[[13.3,52.4],[13.5,52.4],[13.5,52.6],[13.3,52.6],[13.3,52.4]]]}}`))
	h.ask("POST", "prod", "/order/"+numbered(20)+"/had_item_added", by(ada, `{"sku":"PEN","unit_price":10,"quantity":3}`))
	h.ask("POST", "prod", "/_transaction", `{"writes":[{"key":"order:_new","as":"gift","events":[{"type":"was_noted","data":{"text":"a gift"}}]},
		{"key":"order:`+numbered(20)+`","previous_length":1,"events":[{"type":"was_noted","data":{"text":"$.new.gift"}}]}],
		"conditions":[{"fail_if_events_match":{"tags":["tier:none"]}}],"metadata":{"actor":{"type":"user","id":"`+ada+`"},"target":{"type":"user","id":"`+ben+`"}}}`)
}

// workflows lets events be scheduled, fired, refused and cancelled, sagas end in each way or wait, and listeners be
// told, paused and switched off.
func (h *house) workflows() {
	h.t.Helper()
	for i, data := range []string{
		`{"title":"a pump leaks","place":{"lat":52.5,"lng":13.4},"author":"` + ada + `"}`, `{"title":"a lamp","author":"` + eve + `"}`, `{"title":"ice","frozen":true}`,
	} {
		h.ask("POST", "prod", "/ticket/"+numbered(30+i)+"/was_filed", by(ada, data))
	}
	h.ask("POST", "prod", "/ticket/"+numbered(31)+"/was_closed", by(ada, `{}`))
	h.repeatable()
	if status, answer := h.try(
		"POST", "prod", "/ticket/"+numbered(30)+"/was_assigned", "application/json", by(ada, `{"to":"`+ada+`"}`),
	); status < 400 {
		h.t.Fatalf("an implied event that cannot be: %s", answer)
	}
	h.ask("POST", "prod", "/seat/"+numbered(43)+"/was_locked", by(ada, `{}`))
	for i, deadline := range []string{
		"2026-12-01T20:00:00Z", "2027-11-01T00:00:00Z", "2026-12-01T09:30:00Z", "2026-12-01T09:30:00Z",
	} {
		h.ask("POST", "prod", "/trip/"+numbered(40+i)+"/was_requested", by(ada, `{"deadline":"`+deadline+`"}`))
	}
	h.advance("10s")
	h.ask("POST", "prod", "/seat/"+numbered(40)+"/was_reserved", by(ada, `{}`))
	h.ask("POST", "prod", "/_admin/listeners/search/pause", "")
	h.ask("POST", "prod", "/_admin/listeners/books/rotate_secret", "")
	h.advance("2h")
	var pending struct {
		Scheduled []struct {
			ID string `json:"scheduled_id"`
		}
	}
	h.decode(h.ask("GET", "prod", "/_admin/scheduled?status=pending", ""), &pending)
	h.ask("DELETE", "prod", "/_admin/scheduled/"+pending.Scheduled[0].ID, "")
}

// custody makes checkpoints, backups and erasures, and changes the key of the log.
func (h *house) custody(instance string) {
	h.t.Helper()
	h.ask("POST", "prod", "/_admin/checkpoints", `{"name":"before"}`)
	var kept struct{ Checkpoint struct{ ID string } }
	h.decode(h.ask("POST", "prod", "/_admin/checkpoints", `{"name":"users","aggregate_type":"user"}`), &kept)
	h.ask("POST", "prod", "/_admin/checkpoints/"+kept.Checkpoint.ID+"/restore", "")
	h.ask("POST", "prod", "/_admin/root-checkpoints", `{}`)
	h.ask("PUT", "prod", "/_admin/root-checkpoint-settings", `{"enabled":true,"every_events":1000,"keep":9}`)
	h.ask("PUT", "control", instance+"/backup_settings", `{"keep_days":400}`)
	h.completed(h.ask("POST", "prod", "/_admin/backups", `{"kind":"full"}`), "/_admin/backups")
	h.ask("POST", "prod", "/_admin/audit/keys/rotate", "")

	var asked struct{ Tombstone struct{ ID, Status string } }
	h.decode(h.ask("POST", "prod", "/_admin/tombstone/comment/"+numbered(0), ""), &asked)
	h.ask("DELETE", "prod", "/_admin/tombstones/"+asked.Tombstone.ID, "")
	h.ask("POST", "prod", "/_admin/tombstone/user/"+eve, `{"legal_basis":"gdpr_article_17","grace_period_days":3000}`)
	h.decode(h.ask("POST", "prod", "/_admin/tombstone/user/"+ben, `{"legal_basis":"gdpr_article_17","request_id":"REQ-1"}`), &asked)
	h.ask("POST", "prod", "/_admin/tombstones/"+asked.Tombstone.ID+"/execute", `{"force":true}`)
	for asked.Tombstone.Status != "completed" {
		h.advance("1s")
		h.decode(h.ask("GET", "prod", "/_admin/tombstones/"+asked.Tombstone.ID, ""), &asked)
	}
	h.completed(h.ask("POST", "prod", "/_admin/backups", `{"kind":"incremental"}`), "/_admin/backups")
	var whole struct{ Backup struct{ ID, Status string } }
	h.decode(h.ask("POST", "control", "/api/backups", `{"kind":"full"}`), &whole)
	for whole.Backup.Status != "completed" {
		h.advance("100ms")
		h.decode(h.ask("GET", "control", "/api/backups/"+whole.Backup.ID, ""), &whole)
	}
}

// upload stores a file of an environment.
func (h *house) upload(env, name string, content []byte) {
	h.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	if err := form.WriteField("name", name); err != nil {
		h.t.Fatal(err)
	}
	file, err := form.CreateFormFile("file", name)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := file.Write(content); err != nil {
		h.t.Fatal(err)
	}
	if err := form.Close(); err != nil {
		h.t.Fatal(err)
	}
	if status, answer := h.try("POST", env, "/_admin/blobs", form.FormDataContentType(), body.String()); status >= 300 {
		h.t.Fatalf("%d %s", status, answer)
	}
}

// pack writes the files of a folder into an archive, without those that a store rebuilds.
func pack(t *testing.T, dir, file string) {
	t.Helper()
	var b bytes.Buffer
	zip, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(zip)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || e.Name() == "LOCK" || e.Name() == "ballast" {
			if err == nil && e.Name() == "cache" { // of compiled code
				return filepath.SkipDir
			}
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Name: filepath.ToSlash(name), Mode: 0o600, Size: int64(len(content)), ModTime: frozenAt(),
			Format: tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err = errors.Join(
		err, w.Close(), zip.Close(), os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, b.Bytes(), 0o600),
	); err != nil {
		t.Fatal(err)
	}
}
