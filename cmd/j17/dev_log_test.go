package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/code/container"
	"j17/internal/lang/compare"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
	"j17/internal/server"
)

// TestDevShowsWhatToDoNext runs the commands that a development server prints for each example, then finds its data
// folder with the command line.
func TestDevShowsWhatToDoNext(t *testing.T) {
	specs, err := filepath.Glob("../../examples/*/spec.json")
	if err != nil || len(specs) == 0 {
		t.Fatal(specs, err)
	}
	for _, file := range specs {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			t.Parallel()
			file, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			cmd := startable(t, "j17", "dev", file, "--listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0")
			cmd.Dir = dir
			stdout, stderr := begun(t, cmd)
			defer func() {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				_ = cmd.Wait()
			}()
			var commands []string
			out := bufio.NewScanner(stdout)
			for shown := false; out.Scan() && !strings.Contains(out.Text(), "Press Ctrl-C"); {
				shown = shown || strings.Contains(out.Text(), "Write an event")
				if shown && strings.HasPrefix(out.Text(), "  ") {
					commands = append(commands, out.Text())
				}
			}
			first, then, _ := strings.Cut(strings.Join(commands, "\n"), "'\n  curl")
			for i, script := range []string{first + "'", "curl" + then, "exec j17 state get $(echo '" + then + "' | sed 's#.*localhost:[0-9]*/##; s# .*##')"} {
				sh := startable(t, "sh", "-c", script)
				sh.Dir = dir
				reply, err := sh.Output()
				if err != nil || i == 0 && !strings.Contains(string(reply), `"length":1`) ||
					i > 0 && !strings.Contains(string(reply), `"created_at":`) {
					t.Errorf("%s\nprints %s, %v", script, reply, err)
				}
			}
			lines := bufio.NewScanner(stderr)
			for want := range strings.SplitSeq("201 POST,200 GET,200 GET", ",") {
				for lines.Scan() && strings.Contains(lines.Text(), "is deployed") {
				}
				if !regexp.MustCompile(`^\d\d:\d\d:\d\d ` + want + ` +/\S+ \d+\.\d ms$`).MatchString(lines.Text()) {
					t.Errorf("%q is no line about %s", lines.Text(), want)
				}
			}
		})
	}
}

func TestRequestLog(t *testing.T) {
	at := clock.NewManual(time.Date(2026, 1, 31, 12, 0, 5, 0, time.Local))
	x := server.Exchange{
		Method: "GET", Path: "/a\x1b[2J/ü", Status: 404, Duration: 1234567, Environment: j17.Test,
		Code: j17.CodeAggregateNotFound, Detail: "Nothing\nthere",
	}
	var b strings.Builder
	(&requestLog{w: &b, clock: at}).observe(x)
	(&requestLog{w: &b, clock: at, colored: true}).observe(server.Exchange{
		Method: "POST", Path: "/a", Status: 500, Environment: j17.Prod,
	})
	(&requestLog{w: &b, clock: at, colored: true}).observe(server.Exchange{Method: "GET", Path: "/livez", Status: 200})
	want := "12:00:05 404 GET  /a%1B%5B2J/%C3%BC 1.2 ms [test] aggregate_not_found: Nothing\uFFFDthere\n12:00:05 \x1b[31m500\x1b[0m POST /a 0.0 ms\n"
	if b.String() != want {
		t.Errorf("%q", b.String())
	}
}

// TestRequestsThatAreAlike has many requests come at once: they are counted, and no failure is among those.
func TestRequestsThatAreAlike(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			events = 20_000
			every  = 7_000 // fails
		)
		ctx, stop := context.WithCancel(t.Context())
		var said heard
		var now clock.System
		l := &requestLog{w: &said, clock: now}
		go l.follow(ctx)
		post := server.Exchange{
			Method: "POST", Route: "/{type}/{id}/{event}", Path: "/note/a/was_written", Status: 201,
			Environment: j17.Staging,
		}
		failed := post
		failed.Status, failed.Code, failed.Detail = 400, j17.CodeSchemaViolation, "text: it is missing"

		// An import takes ten seconds.
		for i := range events {
			l.observe(post)
			if i%every == 0 {
				l.observe(failed)
			}
			if i%(events/10) == 0 {
				if err := now.Wait(ctx, now.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
			}
		}
		// Who comes much later has a line, and so has what is counted when nothing comes after it.
		if err := now.Wait(ctx, now.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		text := said.String()
		counted := 0
		for _, n := range regexp.MustCompile(`201 POST /\{type\}/\{id\}/\{event\}: (\d+) more like this \[staging\]`).FindAllStringSubmatch(text, -1) {
			more, err := strconv.Atoi(n[1])
			if err != nil {
				t.Fatal(err)
			}
			counted += more
		}
		shown := strings.Count(text, "201 POST /note/a/was_written ")
		if lines := strings.Count(text, "\n"); shown+counted != events || shown > 2*maxAlike || lines > 60 {
			t.Errorf("%d shown and %d counted of %d in %d lines", shown, counted, events, lines)
		}
		if n := strings.Count(text, "400 POST /note/a/was_written 0.0 ms [staging] validation_failed: text: it is missing"); n != 1+events/every {
			t.Errorf("%d failures", n)
		}
		for range maxAlike + 1 {
			l.observe(post)
		}
		stop()
		synctest.Wait()
		rest := strings.TrimPrefix(said.String(), text)
		if strings.Count(rest, "/note/a/was_written") != maxAlike ||
			!strings.HasSuffix(rest, ": 1 more like this [staging]\n") {
			t.Error(rest)
		}
	})
}

// TestDeploymentsSayWhatChanged compares specs as a development server does when its file changes.
func TestDeploymentsSayWhatChanged(t *testing.T) {
	at := clock.NewManual(time.Date(2026, 1, 31, 12, 0, 5, 0, time.Local))
	var many []compare.Change
	for range maxChangesShown + 3 {
		many = append(many, compare.Change{Kind: compare.Removed, What: "projection", Name: "p\x1b"})
	}
	for _, tc := range []struct {
		d    server.DeployAttempt
		want string
	}{
		{server.DeployAttempt{}, "is deployed to prod, staging and test\n"},
		{server.DeployAttempt{Compared: true}, "is deployed to prod, staging and test: nothing in it has changed\n"},
		{server.DeployAttempt{Compared: true, Changes: []compare.Change{
			{Kind: compare.Added, What: "event type", Name: "order.was_paid"},
			{Kind: compare.Changed, What: "project_key"},
			{Kind: compare.Changed, What: "event type", Name: "order.was_placed", Keys: []string{"handler", "schema"}},
		}}, "is deployed to prod, staging and test: event type order.was_paid added; project_key changed; event type order.was_placed changed (handler, schema)\n"},
		{
			server.DeployAttempt{Compared: true, Changes: many},
			"test: " + strings.Repeat("projection p\uFFFD removed; ", maxChangesShown) + "and 3 more\n",
		},
		{server.DeployAttempt{Unreached: []string{"bank", "search"}}, "is deployed to prod, staging and test\n" +
			"Nothing is delivered to addresses of this machine, where the spec has listeners (bank, search), unless there is --allow-private-listeners.\n"},
		{server.DeployAttempt{Err: server.ErrInvalidSpec}, "was not deployed; the spec before it, if any, stays in place\n"},
		{server.DeployAttempt{Err: errors.New("the disk is full")}, "was not deployed: the disk is full\n"},
	} {
		tc.d.File = "spec.json"
		var b strings.Builder
		reportDeployment(&b, at, tc.d)
		if got := b.String(); !strings.HasPrefix(got, "12:00:05 spec.json ") || !strings.HasSuffix(got, tc.want) {
			t.Errorf("%q, not %q", got, tc.want)
		}
	}
}

// TestNoFirstRequest checks that nothing is shown that would be refused.
func TestNoFirstRequest(t *testing.T) {
	const text = `{"agent_types":["user"],"aggregate_types":{"note":{"events":{
		"was_hard":{"schema":{"type":"object","required":["a"],"properties":{"a":{"type":"string","pattern":"^[a-z]+$","minLength":5}}},"handler":[]}EASY}}}}`
	compile := func(easy string) *spec.Compiled {
		c, found := lint.Compile([]byte(strings.Replace(text, "EASY", easy, 1)))
		if c == nil {
			t.Fatal(found)
		}
		return c
	}
	if got := firstRequests(nil, "spec.json", "http://localhost:1", "k"); !strings.Contains(got, "'j17 dev spec.json' runs the one in this folder") || strings.Contains(got, "spec new") {
		t.Error(got)
	}
	if got := firstRequests(
		compile(""), "", "http://localhost:1", "k",
	); !strings.Contains(got, "No data could be made up") ||
		!strings.Contains(got, "curl http://localhost:1/note/global/was_hard ") || !strings.Contains(got, `{"data": DATA, "metadata": {"actor": {"type": "user", "id": "global"}}}`) {
		t.Error(got)
	}
	for _, text := range []string{"", `{"agent_types":["user"],"aggregate_types":{}}`, `{"agent_types":["user"],"aggregate_types":{"note":{"events":{}}}}`} {
		c, _ := lint.Compile([]byte(text))
		if got := firstRequests(c, "", "http://localhost:1", "k"); !strings.Contains(got, "so no event can be written. 'j17 spec new orders -o spec.json'") || strings.Contains(got, "curl") {
			t.Errorf("%s: %s", text, got)
		}
	}
	if got := firstRequests(compile(`,"was_easy":{"schema":{"type":"object","required":["it's"]},"handler":[]}`), "", "http://localhost:1", "k"); !strings.Contains(got, "/was_easy ") || !strings.Contains(got, `"it'\''s"`) {
		t.Error(got)
	}
}

// TestAFileThatIsGone removes a file that is watched, twice, and once for a moment only.
func TestAFileThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "spec.json")
		write := func() {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		var said heard
		var now clock.System
		write()
		go watchGone(ctx, now, file, &said)
		for i, step := range []struct {
			change func()
			said   int
		}{
			{func() {}, 0},
			{func() { _ = os.Remove(file) }, 0},
			{write, 0},
			{func() { _ = os.Remove(file) }, 0},
			{func() {}, 1},
			{func() {}, 1},
			{write, 1},
			{func() { _ = os.Remove(file) }, 1},
			{func() {}, 2},
		} {
			step.change()
			if err := now.Wait(ctx, now.Now().Add(goneInterval)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := strings.Count(said.String(), "spec.json is gone."); n != step.said {
				t.Errorf("step %d: said %d times\n%s", i, n, said.String())
			}
		}
		stop()
		synctest.Wait()
	})
}

// TestRetriesAreToldOnce has several requests fail side by side.
func TestRetriesAreToldOnce(t *testing.T) {
	var said strings.Builder
	c := clock.NewManual(time.Unix(1_700_000_000, 0))
	retrying := (&env{err: &said}).retrying(c)
	for range 8 {
		retrying(errors.New("no answer"), time.Second)
		c.Advance(10 * time.Millisecond)
	}
	c.Advance(time.Second)
	retrying(errors.New("no answer"), 2*time.Second)
	retrying(errors.New("no answer"), 2*time.Second)
	if want := "no answer. Trying again in 1s.\nno answer. Trying again in 2s.\n"; said.String() != want {
		t.Error(said.String())
	}
}

// TestNamesOfOthers compares what flags are checked against with what the server knows.
func TestNamesOfOthers(t *testing.T) {
	var roles []string
	for _, r := range control.Roles() {
		roles = append(roles, string(r))
	}
	if diff := cmp.Diff(roles, operatorRoles()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		string(container.Bubblewrap), string(container.Runc), string(container.Docker), string(container.Podman),
	}, containerDrivers()); diff != "" {
		t.Error(diff)
	}
}

// TestFindingTheServer checks where requests go, by what is said about it.
func TestFindingTheServer(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "dev.json"), []byte(`{"url":"http://localhost:4711","keys":{"prod":{"write":"p"},"staging":{"write":"s"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		url, env, key   string
		want, host, pwd string
	}{
		{"", "", "", "http://localhost:4711", "", "p"},
		{"", "staging", "", "http://app-staging.localhost:4711", "", "s"},
		{"http://127.0.0.1:9", "staging", "k", "http://127.0.0.1:9", "app-staging.localhost", "k"},
		{"http://app-staging.localhost:9", "", "", "http://app-staging.localhost:9", "", "s"},
		{"http://shop-test.localhost:9/", "prod", "", "http://shop.localhost:9/", "", "p"},
		{"https://shop.example.com", "", "k", "https://shop.example.com", "", "k"},
		{"https://shop.example.com/base", "test", "k", "https://shop-test.example.com/base", "", "k"},
		{"https://shop-staging.example.com", "prod", "k", "https://shop.example.com", "", "k"},
		{"https://shop.example.com", "", "", "", "", ""}, // the keys of a folder are not sent elsewhere
		{"https://shop", "test", "k", "", "", ""},
		{"http://192.0.2.1", "test", "k", "", "", ""},
		{"shop", "", "k", "", "", ""},
		{"", "live", "k", "", "", ""},
		{"", "", "two words", "", "", ""},
	} {
		e := &env{getenv: func(string) string { return "" }}
		got, err := e.resolve(&remote{url: tc.url, env: tc.env, key: tc.key, data: dir})
		if got != (target{url: tc.want, host: tc.host, key: tc.pwd}) && err == nil || (err != nil) != (tc.want == "") {
			t.Errorf("%q %q: %+v, %v", tc.url, tc.env, got, err)
		}
	}
}
