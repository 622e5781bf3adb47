package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestDocs runs the examples of README.md and docs/. In a page with the comment
//
//	<!-- server: examples/orders/spec.json -->
//
// all blocks marked "sh run" are one session of a shell, in an empty folder, against a development server with that spec.
// The variables J17_URL, J17_KEY (a write key), J17_READ_KEY, J17_STAGING_KEY, J17_OPERATOR_EMAIL, J17_OPERATOR_PASSWORD and, for the program itself, a PATH with j17
// on it are set. A block marked "reply" that follows one of them is what it prints; "…" stands for anything up to the next
// character that is not.
func TestDocs(t *testing.T) {
	root := "../.."
	pages := []string{filepath.Join(root, "README.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(root, page)
		session := sessionOf(string(raw))
		if len(session.blocks) == 0 {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) { session.run(t, root) })
	}
	if ran < 2 {
		t.Errorf("only %d pages have examples", ran)
	}
}

// session is the executable part of a page.
type session struct {
	spec   string
	blocks []block
}

type block struct {
	line         int
	code         string
	reply        string
	checksOutput bool
}

func sessionOf(page string) session {
	var s session
	server := regexp.MustCompile(`^<!-- server: (\S+) -->$`)
	var info string
	var body []string
	start := 0
	for i, line := range strings.Split(page, "\n") {
		if m := server.FindStringSubmatch(line); m != nil {
			s.spec = m[1]
		}
		if !strings.HasPrefix(line, "```") {
			body = append(body, line)
			continue
		}
		if info == "" {
			info, body, start = line, nil, i+1
			continue
		}
		text := strings.Join(body, "\n")
		switch {
		case strings.HasSuffix(info, " run"):
			s.blocks = append(s.blocks, block{line: start, code: text})
		case strings.HasSuffix(info, " reply") && len(s.blocks) > 0:
			b := &s.blocks[len(s.blocks)-1]
			b.reply, b.checksOutput = text, true
		}
		info = ""
	}
	return s
}

func (s session) run(t *testing.T, root string) {
	t.Helper()
	specFile, err := filepath.Abs(filepath.Join(root, s.spec))
	if err != nil || s.spec == "" {
		t.Fatal("the page has examples to run but names no spec for the server", err)
	}
	dir := t.TempDir()
	p, err := startDev(t.Context(), dir, specFile, "--data", filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}()
	const mark = "--- end of block "
	var script strings.Builder
	for i, b := range s.blocks {
		fmt.Fprintf(&script, "%s\necho; echo '%s%d'\n", b.code, mark, i)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-s")
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(script.String())
	cmd.Env = append(os.Environ(), "J17_URL="+p.url, "J17_KEY="+p.ready.Keys["prod"].Write, "J17_READ_KEY="+p.ready.Keys["prod"].Read,
		"J17_STAGING_KEY="+p.ready.Keys["staging"].Write,
		"J17_OPERATOR_EMAIL="+p.ready.Operator.Email, "J17_OPERATOR_PASSWORD="+p.ready.Operator.Password)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	rest := out.String()
	for i, b := range s.blocks {
		var got string
		got, rest, _ = strings.Cut(rest, fmt.Sprintf("%s%d\n", mark, i))
		if b.checksOutput && !matches(b.reply, got) {
			t.Errorf("line %d prints\n%s\nand not\n%s", b.line, strings.TrimSpace(got), b.reply)
		}
	}
}

// matches compares output with what a page shows, white space aside.
func matches(want, got string) bool {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
	pattern := strings.ReplaceAll(regexp.QuoteMeta(squeeze(want)), "…", ".*?")
	return regexp.MustCompile("^(?s:" + pattern + ")$").MatchString(squeeze(got))
}
