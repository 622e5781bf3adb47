package pebble_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"j17"
	"j17/internal/clock"
	"j17/internal/store"
	"j17/internal/store/pebble"
	"j17/internal/store/storetest"
)

// TestDocumentedExport writes the export that docs/storage-format.md shows.
func TestDocumentedExport(t *testing.T) {
	t.Parallel()
	s := open(t, pebble.Options{Dir: "data", FS: vfs.NewMem(), Clock: clock.NewManual(frozenTime())})
	defer closeStore(t, s)
	note := j17.Key{Type: "note", ID: "global"}
	list := events(note, `{"text":"my name is Ada"}`, `{"text":"hello"}`)
	for i := range list {
		list[i].Type = "was_written"
	}
	_, err := s.Append(t.Context(), "app/test", []store.Append{{
		Timestamp: frozenTime().Unix(), Events: list, Side: []store.Side{{Op: store.Put, Space: space, Key: "k", Value: []byte("v")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := storetest.Erase(t.Context(), s, "app/test", note, erase(1)); err != nil {
		t.Fatal(err)
	}
	var export bytes.Buffer
	if err := s.ExportTenant(t.Context(), "app/test", &export); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/storage-format.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```text\n"+export.String()+"```\n") {
		t.Errorf("docs/storage-format.md does not show this export:\n%s", export.String())
	}
	checkExport(t, export.String())
}

// TestIndependentCheck checks the frozen export with the steps of docs/storage-format.md and no code of the store's.
func TestIndependentCheck(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(frozenExport)
	if err != nil {
		t.Fatal(err)
	}
	checkExport(t, string(text))
}

// checkExport is a program that checks an export, written from the documentation.
func checkExport(t *testing.T, text string) {
	t.Helper()
	type counts struct{ Streams, Events, Items, Commands int }
	var last struct {
		End struct {
			counts
			SHA256 string
		}
	}
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	end := lines[len(lines)-1]
	if err := json.Unmarshal([]byte(end), &last); err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256([]byte(strings.TrimSuffix(text, end+"\n"))); hex.EncodeToString(sum[:]) != last.End.SHA256 {
		t.Errorf("the SHA-256 is %x, the last line says %s", sum, last.End.SHA256)
	}
	var got counts
	var stream struct {
		Key    string
		Length int
		Chain  string
	}
	var kept, position string
	var chain [32]byte
	length, positions := 0, map[string]bool{}
	endStream := func() {
		if stream.Key != "" && (length != stream.Length || hex.EncodeToString(chain[:]) != stream.Chain) {
			t.Errorf("%s has %d events with chain %x", stream.Key, length, chain)
		}
		stream.Key, position, chain, length = "", "", [32]byte{}, 0
	}
	for _, line := range lines[1 : len(lines)-1] {
		line = strings.TrimSuffix(line, "\n")
		var l struct {
			StreamID string `json:"stream_id"`
			Key      string
			Stream   json.RawMessage
			Leaf     string
			Tags     []string
			Note     any
			Item     any
			Command  any
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		switch {
		case l.StreamID != "":
			leaf := sha256.Sum256(append([]byte{0}, line...))
			if kept != "" {
				if hex.EncodeToString(leaf[:]) == kept {
					t.Errorf("%s was erased and has the bytes that it had", l.StreamID)
				}
				if n, err := hex.Decode(leaf[:], []byte(kept)); n != 32 || err != nil {
					t.Fatalf("leaf %q: %v", kept, err)
				}
				kept = ""
			}
			chain = sha256.Sum256(append(chain[:], leaf[:]...))
			// Positions of one millisecond have few digits here, so their texts sort like them.
			if l.Key != stream.Key || positions[l.StreamID] || l.StreamID <= position {
				t.Errorf("event %s of %s stands in the stream %s after %s", l.StreamID, l.Key, stream.Key, position)
			}
			position, positions[l.StreamID] = l.StreamID, true
			length++
			got.Events++
		case l.Stream != nil:
			endStream()
			if err := json.Unmarshal(l.Stream, &stream); err != nil {
				t.Fatal(err)
			}
			got.Streams++
		case l.Leaf != "":
			kept = l.Leaf
		case l.Tags != nil, l.Note != nil:
		case l.Item != nil:
			got.Items++
		case l.Command != nil:
			got.Commands++
		default:
			t.Errorf("unknown line %s", line)
		}
	}
	endStream()
	if got != last.End.counts {
		t.Errorf("the export holds %+v, its last line says %+v", got, last.End.counts)
	}
	if got.Events == 0 || got.Streams == 0 {
		t.Errorf("the export holds %+v: nothing was checked", got)
	}
}
