package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"j17"
	"j17/internal/server"
)

// home is a home in which commands are run.
type home string

// run runs the program in a folder and returns what it prints.
func (h home) run(t *testing.T, dir, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := startable(t, "j17", args...)
	cmd.Env = append(cmd.Env, "HOME="+string(h))
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestTheFolderOfARunningServerGoesFirst logs in to another server and works in the folder of one's own: while that one
// runs, it is meant; when it does not, the other one is, and says so.
func TestTheFolderOfARunningServerGoesFirst(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "spec.json"), []byte(plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	mine, err := startDev(t, dir, "spec.json", "--data", "j17-data")
	if err != nil {
		t.Fatal(err)
	}
	other, _ := started(t, plainSpec)
	h := home(t.TempDir())
	login := func(p *process) {
		t.Helper()
		if code, out, errs := h.run(
			t, t.TempDir(), p.ready.Operator.Password, "login", p.url, "--email", p.ready.Operator.Email,
			"--password-stdin",
		); code != exitOK {
			t.Fatal(out, errs)
		}
	}
	login(other)
	if code, _, errs := h.run(t, t.TempDir(), "", "keys", "create", "x", "--save"); code != exitOK || !strings.Contains(errs, "Changing prod of http://app.localhost:") {
		t.Fatal(errs)
	}
	post := []string{"events", "post", "note/global", "was_written", `{"text":"x"}`, "--actor", "user:global"}
	lengths := func() string {
		count := func(p *process) string {
			_, out, _ := h.run(
				t, t.TempDir(), "", "events", "list", "note/global", "--url", p.url, "--key", p.ready.Keys["prod"].Read,
			)
			return fmt.Sprint(strings.Count(out, "\n"))
		}
		return count(mine) + " here, " + count(other) + " there"
	}

	// In the folder nothing is said of where, for it is clear.
	if code, out, errs := h.run(t, dir, "", post...); code != exitOK || errs != "" ||
		!strings.Contains(out, "length 1") {
		t.Fatal(code, out, errs)
	}
	if got := lengths(); got != "1 here, 0 there" {
		t.Fatal(got)
	}
	if code, out, errs := h.run(t, dir, "", "keys", "create", "y"); code != exitOK ||
		strings.Contains(errs, "Changing") || out == "" {
		t.Error(code, errs)
	}

	// No credential of one goes to the other.
	code, out, _ := h.run(t, dir, "", "context", "show", "--json")
	var rows []struct{ Setting, Value, From string }
	if err := json.Unmarshal([]byte(out), &rows); err != nil || code != exitOK {
		t.Fatal(out, err)
	}
	for _, row := range rows {
		if row.From != "" && row.From != "data folder" {
			t.Errorf("%+v", row)
		}
	}

	// Elsewhere, by name, and by a variable it is the other one.
	context := "127.0.0.1" + other.url[strings.LastIndexByte(other.url, ':'):]
	for i, elsewhere := range []struct {
		dir   string
		flags []string
	}{{t.TempDir(), nil}, {dir, []string{"--context", context}}} {
		code, out, errs := h.run(t, elsewhere.dir, "", append(append([]string{}, post...), elsewhere.flags...)...)
		if code != exitOK || !strings.HasPrefix(errs, "Writing to prod of http://app.localhost:") || !strings.Contains(out, fmt.Sprint("length ", i+1)) {
			t.Error(code, out, errs)
		}
	}
	if got := lengths(); got != "1 here, 2 there" {
		t.Fatal(got)
	}

	// A login to a second server on this machine is another context.
	login(mine)
	if _, out, _ := h.run(t, dir, "", "context", "list"); strings.Count(out, "127.0.0.1:") != 4 { // names and servers
		t.Error(out)
	}
	if code, _, errs := h.run(t, dir, "", "context", "use", context); code != exitOK {
		t.Fatal(errs)
	}

	// The keys of a folder are for its server only, even on the same machine.
	if code, _, errs := h.run(
		t, dir, "", append(append([]string{}, post...), "--url", other.url)...,
	); code != exitUsage ||
		!strings.Contains(errs, "There is no API key") && !strings.Contains(errs, "there is no API key") {
		t.Error(code, errs)
	}
	if err := mine.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, out, errs := h.run(t, dir, "", post...); code != exitOK ||
		!strings.Contains(errs, "Writing to prod of ") || !strings.Contains(out, "length 3") {
		t.Error(code, out, errs)
	}
}

// TestAnotherServerAtTheAddressOfTheFolder has another server listen at the address of the folder's: the folder counts
// as one whose server does not run, and its keys do not go there while there is a current context.
func TestAnotherServerAtTheAddressOfTheFolder(t *testing.T) {
	dir := t.TempDir()
	mine, err := startDev(t, dir, "--data", "j17-data")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := server.ReadDevAccess(filepath.Join(dir, "j17-data"))
	if err != nil {
		t.Fatal(err)
	}
	if dev.Sign == "" || !devAnswers(t.Context(), dev) {
		t.Fatal("the folder's server does not answer")
	}
	if err := mine.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if devAnswers(t.Context(), dev) {
		t.Fatal("a server that has ended answers")
	}
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "spec.json"), []byte(plainSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	other, err := startDev(t, elsewhere, "spec.json", "--data", "j17-data")
	if err != nil {
		t.Fatal(err)
	}
	// It has the address that is in the first folder, as if it had taken the port.
	file := filepath.Join(dir, "j17-data", "dev.json")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.ReplaceAll(raw, []byte(dev.URL), []byte(strings.Replace(other.url, "127.0.0.1", "localhost", 1)))
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if dev, err = server.ReadDevAccess(filepath.Dir(file)); err != nil {
		t.Fatal(err)
	}
	if devAnswers(t.Context(), dev) {
		t.Error("another server counts as that of the folder")
	}

	// The current context leads to a third one, and so does the folder now.
	third, _ := started(t, plainSpec)
	h := home(t.TempDir())
	if code, out, errs := h.run(
		t, t.TempDir(), third.ready.Operator.Password, "login", third.url, "--email", third.ready.Operator.Email,
		"--password-stdin",
	); code != exitOK {
		t.Fatal(out, errs)
	}
	if code, _, errs := h.run(t, t.TempDir(), "", "keys", "create", "x", "--save"); code != exitOK {
		t.Fatal(errs)
	}
	post := []string{"events", "post", "note/global", "was_written", `{"text":"x"}`, "--actor", "user:global"}
	if code, out, errs := h.run(t, dir, "", post...); code != exitOK || !strings.Contains(out, "length 1") ||
		!strings.HasPrefix(errs, "Writing to prod of ") {
		t.Error(code, out, errs)
	}
	if code, out, errs := h.run(t, elsewhere, "", post...); code != exitOK || !strings.Contains(out, "length 1") ||
		errs != "" {
		t.Error(code, out, errs)
	}
	if err := other.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// TestHostsBelowLocalhost checks which hosts a server's are, by the name that somebody gives for it.
func TestHostsBelowLocalhost(t *testing.T) {
	for address, want := range map[string]string{
		"http://127.0.0.1:9":             "shop.localhost http://127.0.0.1:9",
		"http://localhost:9":             " http://shop.localhost:9",
		"http://control.localhost:9":     " http://shop.localhost:9",
		"http://app-staging.localhost:9": " http://shop.localhost:9",
		"http://j17.localhost:9":         " http://shop.j17.localhost:9",
		"http://control.j17.localhost:9": " http://shop.j17.localhost:9",
		"https://control.example.com":    " https://shop.example.com",
		"https://example.com":            " https://shop.example.com",
	} {
		s := &connection{url: sourced{value: address}}
		u, err := s.address()
		if err != nil {
			t.Fatal(err)
		}
		var got target
		if err := got.instance(u, "shop", j17.Prod); err != nil || got.host+" "+got.url != want {
			t.Errorf("%s: %s %s, %v", address, got.host, got.url, err)
		}
	}
	for address, want := range map[string]string{
		"http://control.localhost:9": "http://localhost:9", "http://control.j17.localhost:9/": "http://j17.localhost:9",
		"http://[::1]:9":     "http://[::1]:9",
		"http://127.0.0.1:9": "http://127.0.0.1:9", "https://control.example.com": "https://example.com",
		"http://app.localhost:9": "http://localhost:9",
	} {
		if got, err := (&connection{url: sourced{value: address}}).base(); err != nil || got != want {
			t.Errorf("%s: %s, %v", address, got, err)
		}
	}
}

// TestTheFolderKeepsALogin runs several commands of the folder's operator: they log in once, and again when the token
// does not count any more.
func TestTheFolderKeepsALogin(t *testing.T) {
	dir := t.TempDir()
	p, err := startDev(t, dir, "--data", "j17-data")
	if err != nil {
		t.Fatal(err)
	}
	h := home(t.TempDir())
	run := func(args ...string) string {
		t.Helper()
		code, out, errs := h.run(t, dir, "", args...)
		if code != exitOK {
			t.Fatal(args, out, errs)
		}
		return out
	}
	logins := func() int { return strings.Count(run("audit", "list", "--action", "operator.login"), "operator.login") }
	run("instances", "list")
	first := logins()
	if again := logins(); first == 0 || again != first {
		t.Errorf("%d logins, then %d", first, again)
	}
	file := filepath.Join(dir, "j17-data", devLogin)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	run("operators", "revoke-tokens", p.ready.Operator.Email)
	if again := logins(); again != first+1 {
		t.Errorf("%d logins after the token was revoked, and %d before", again, first)
	}
	for _, damaged := range []string{"", "{", `{"token":"two words"}`, `{"token":7}`} {
		if err := os.WriteFile(file, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		run("instances", "list")
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := h.run(t, dir, "", "instances", "list"); code != exitFailure || strings.Count(errs, "\n") != 1 ||
		!strings.Contains(errs, "no answer") {
		t.Error(code, errs)
	}
}
