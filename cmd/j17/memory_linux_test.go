package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const visitSpec = `{"agent_types":["user"],"aggregate_types":{"user":{"events":{"had_visit":{"schema":{"type":"object"},"handler":[{"set":{"target":"","value":"$.data"}}]}}}}}`

// TestErasedDataLeaveTheMemory reads the memory of servers after an erasure. By itself the runtime leaves what stood in
// pages that it takes for stacks and small objects: some copies. Where it overwrites what it frees, there are none.
func TestErasedDataLeaveTheMemory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, debug string
		left        int // of a hundred copies
	}{{"by itself", "", 10}, {"objects are overwritten when they are freed", "clobberfree=1", 0}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "spec.json"), []byte(visitSpec), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := startable(t, "j17", devArgs([]string{"spec.json", "--data", "data"})...)
			cmd.Env = append(cmd.Environ(), "GODEBUG="+tc.debug)
			p, err := startDevAs(cmd, dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.end(syscall.SIGTERM) })
			erasedDataLeaveTheMemory(t, p, tc.left)
		})
	}
}

func erasedDataLeaveTheMemory(t *testing.T, p *process, left int) {
	t.Helper()
	token := operatorToken(t, p)
	const word, path = "Quetzalcoatl-wears-feathers-since-1325", "/user/00000001-0000-4000-8000-000000000000"
	event := `{"type":"had_visit","data":{"word":"` + word + `","fill":"` + strings.Repeat("x", 200) + `"}}`
	body := `{"events":[` + strings.TrimSuffix(strings.Repeat(event+",", 150), ",") + `],"metadata":{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440001"}}}`
	for range 3 {
		if s := requested(
			t, p, http.MethodPost, "prod", path, p.ready.Keys["prod"].Write, body, nil,
		); s != http.StatusCreated {
			t.Fatalf("a write: %d", s)
		}
	}
	before := inMemory(t, p, word)
	if before == 0 {
		t.Fatal("the word was nowhere before it was erased")
	}
	awaitErasure(t, p, token, askErasure(t, p, token, path))
	await(t, "erased data leave the memory", func() bool { return inMemory(t, p, word) <= before*left/100 })
}

// inMemory counts a word in the memory of a process that it may write to. It reads that in pieces, each of which begins
// with the end of the one before: a mapping can be far larger than what is in use.
func inMemory(t *testing.T, p *process, word string) (found int) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mem.Close() }()
	piece, overlap := make([]byte, 1<<20), len(word)-1
	for lines := bufio.NewScanner(bytes.NewReader(maps)); lines.Scan(); {
		var from, to int64
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); err != nil ||
			!strings.HasPrefix(rights, "rw") {
			continue
		}
		part := io.NewSectionReader(mem, from, to-from)
		for kept := 0; ; {
			n, err := io.ReadFull(part, piece[kept:])
			found += bytes.Count(piece[:kept+n], []byte(word))
			if err != nil {
				break // the end, or what has been unmapped since
			}
			kept = copy(piece, piece[len(piece)-overlap:])
		}
	}
	return found
}
