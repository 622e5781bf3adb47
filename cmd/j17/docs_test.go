package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestDocs runs the examples of README.md and docs/. In a page with the comment
//
//	<!-- server: examples/orders/spec.json -->
//
// all blocks marked "sh run" are one session of a shell, in an empty folder, against a development server with that
// spec. A name without a folder is that of a file which the blocks before the comment have written: the server starts
// there, and when a later block changes the file, the next one runs once the server has deployed it. The variables
// J17_URL, J17_KEY (a write key), J17_READ_KEY, J17_STAGING_KEY, J17_OPERATOR_EMAIL, J17_OPERATOR_PASSWORD and, for the
// program itself, a PATH with j17 on it are set. A block marked "reply" that follows one of them is what it prints; "…"
// stands for anything up to the next character that is not.
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
		if !slices.ContainsFunc(session.blocks, func(b block) bool { return b.code != "" }) {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			session.run(t, root)
		})
	}
	if ran < 2 {
		t.Errorf("only %d pages have examples", ran)
	}
}

// session is the executable part of a page.
type session struct{ blocks []block }

type block struct {
	line int
	// server is the spec of the server that starts here, in the place of a block.
	server       string
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
			s.blocks = append(s.blocks, block{line: i + 1, server: m[1]})
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
		case strings.HasSuffix(info, " reply") && len(s.blocks) > 0 && s.blocks[len(s.blocks)-1].server == "":
			b := &s.blocks[len(s.blocks)-1]
			b.reply, b.checksOutput = text, true
		}
		info = ""
	}
	return s
}

func (s session) run(t *testing.T, root string) {
	t.Helper()
	sh := openShell(t)
	var p *process
	var specFile string
	var specText []byte
	for i, b := range s.blocks {
		if b.server != "" {
			if p != nil {
				t.Fatalf("line %d: the page has a server already", b.line)
			}
			specFile = filepath.Join(sh.dir, b.server)
			if strings.Contains(b.server, "/") {
				specFile = filepath.Join(root, b.server)
			}
			var err error
			if specFile, err = filepath.Abs(specFile); err != nil {
				t.Fatal(err)
			}
			p = sh.serve(t, specFile)
			specText = readIfThere(t, specFile)
			continue
		}
		got := sh.run(t, i, b)
		if b.checksOutput && !matches(b.reply, got) {
			t.Errorf("line %d prints\n%s\nand not\n%s", b.line, strings.TrimSpace(got), b.reply)
		}
		if p == nil {
			continue
		}
		if now := readIfThere(t, specFile); !bytes.Equal(now, specText) {
			specText = now
			if sh.deployed++; !p.err.await(deployedText, sh.deployed) {
				t.Fatalf("line %d: the server did not deploy the new spec\n%s", b.line, p.err.String())
			}
		}
	}
	if p == nil {
		t.Fatal("the page has examples to run but names no spec for the server")
	}
	sh.close(t)
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// deployedText is what a server says of a deployment.
const deployedText = " is deployed to "

// shell is a shell that gets one block after the other.
type shell struct {
	dir string
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	// errs is what it has said on standard error.
	errs bytes.Buffer
	// deployed is how often the server should have deployed its spec.
	deployed int
}

func openShell(t *testing.T) *shell {
	t.Helper()
	sh := &shell{dir: t.TempDir()}
	sh.cmd = startable(t, "bash", "-eu", "-o", "pipefail", "-s")
	sh.cmd.Dir, sh.cmd.Stderr = sh.dir, &sh.errs
	out, err := said(sh.cmd.StdoutPipe)
	if err != nil {
		t.Fatal(err)
	}
	if sh.in, err = sh.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	sh.out = bufio.NewReader(out)
	if err := sh.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return sh
}

// serve starts a server and tells the shell of it.
func (sh *shell) serve(t *testing.T, specFile string) *process {
	t.Helper()
	p, err := startDev(t, sh.dir, specFile, "--data", filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	sh.deployed = 1
	for name, v := range map[string]string{
		"J17_URL": p.url, "J17_KEY": p.ready.Keys["prod"].Write, "J17_READ_KEY": p.ready.Keys["prod"].Read,
		"J17_STAGING_KEY":    p.ready.Keys["staging"].Write,
		"J17_OPERATOR_EMAIL": p.ready.Operator.Email, "J17_OPERATOR_PASSWORD": p.ready.Operator.Password,
	} {
		if _, err := fmt.Fprintf(sh.in, "export %s='%s'\n", name, v); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// run has a block run and returns what it prints.
func (sh *shell) run(t *testing.T, i int, b block) string {
	t.Helper()
	mark := fmt.Sprintf("--- end of block %d", i)
	if _, err := fmt.Fprintf(sh.in, "%s\necho; echo '%s'\n", b.code, mark); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for {
		line, err := sh.out.ReadString('\n')
		if line == mark+"\n" {
			return got.String()
		}
		got.WriteString(line)
		if err != nil {
			t.Fatalf("line %d: %v\n%s%s", b.line, errors.Join(err, sh.cmd.Wait()), got.String(), sh.errs.String())
		}
	}
}

func (sh *shell) close(t *testing.T) {
	t.Helper()
	if err := errors.Join(sh.in.Close(), sh.cmd.Wait()); err != nil {
		t.Errorf("%v\n%s", err, sh.errs.String())
	}
}

func readIfThere(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return raw
}

// matches compares output with what a page shows, white space aside.
func matches(want, got string) bool {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") }
	pattern := strings.ReplaceAll(regexp.QuoteMeta(squeeze(want)), "…", ".*?")
	return regexp.MustCompile("^(?s:" + pattern + ")$").MatchString(squeeze(got))
}
