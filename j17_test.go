package j17_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"j17"
)

func TestStreamIDs(t *testing.T) {
	for _, tc := range []struct {
		text string
		want j17.StreamID
		ok   bool
	}{
		{"1706789012345-0", j17.StreamID{Ms: 1706789012345}, true},
		{"1706789012345-17", j17.StreamID{Ms: 1706789012345, Seq: 17}, true},
		{"0000000000001-4294967295", j17.StreamID{Ms: 1, Seq: 1<<32 - 1}, true},
		{"0000000000001-4294967296", j17.StreamID{}, false},
		{"1706789012345-00", j17.StreamID{}, false},
		{"1706789012345-", j17.StreamID{}, false},
		{"1706789012345", j17.StreamID{}, false},
		{"170678901234-0", j17.StreamID{}, false},
		{"170678901234x-0", j17.StreamID{}, false},
		{"1706789012345_0", j17.StreamID{}, false},
		{"-706789012345-0", j17.StreamID{}, false},
		{"", j17.StreamID{}, false},
	} {
		got, err := j17.ParseStreamID(tc.text)
		if (err == nil) != tc.ok || got != tc.want {
			t.Errorf("%q: %v, %v", tc.text, got, err)
		}
		if tc.ok && got.String() != tc.text {
			t.Errorf("%q became %q", tc.text, got)
		}
	}
}

// TestPositions: the position before the first event is written "0", and read in either form.
func TestPositions(t *testing.T) {
	for text, want := range map[string]j17.StreamID{
		"0": {}, "1706789012345-17": {Ms: 1706789012345, Seq: 17}, "0000000000000-1": {Seq: 1},
	} {
		got, err := j17.ParsePosition(text)
		if err != nil || got != want || got.PositionText() != text ||
			string(got.AppendPosition([]byte("id: "))) != "id: "+text {
			t.Errorf("%q: %v, %v, written %q", text, got, err, got.PositionText())
		}
	}
	if got, err := j17.ParsePosition("0000000000000-0"); err != nil || !got.IsZero() {
		t.Errorf("%v, %v", got, err)
	}
	for _, text := range []string{"", "00", "-0", "0-0", "1"} {
		if got, err := j17.ParsePosition(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestStreamIDOrder(t *testing.T) {
	ordered := []j17.StreamID{{}, {Ms: 1}, {Ms: 1, Seq: 1}, {Ms: 1, Seq: 1<<32 - 1}, {Ms: 2}}
	for i, a := range ordered {
		for k, b := range ordered {
			if want := min(max(i-k, -1), 1); a.Compare(b) != want {
				t.Errorf("%v compared with %v: %d", a, b, a.Compare(b))
			}
		}
		if a.Compare(a.Next()) != -1 {
			t.Errorf("%v is followed by %v", a, a.Next())
		}
	}
}

func TestCanonicalEvents(t *testing.T) {
	for _, metadata := range []string{`{}`, `{"actor":{"type":"user","id":"global"}}`} {
		raw, at := j17.AppendEvent(
			[]byte("before"), j17.StreamID{Ms: 7, Seq: 2}, j17.Key{Type: "order", ID: "ABC123XYZ"}, "was_placed",
			[]byte(`{"n":1.10}`), []byte(metadata), 1700000000,
		)
		raw = raw[len("before"):]
		var event struct {
			StreamID string          `json:"stream_id"`
			Key      string          `json:"key"`
			Type     string          `json:"type"`
			Data     json.RawMessage `json:"data"`
			Metadata json.RawMessage `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &event); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if event.StreamID != "0000000000007-2" || event.Key != "order:ABC123XYZ" || event.Type != "was_placed" {
			t.Errorf("%s", raw)
		}
		if string(at.DataOf(raw)) != string(event.Data) || string(at.MetadataOf(raw)) != string(event.Metadata) {
			t.Errorf("views %s and %s of %s", at.DataOf(raw), at.MetadataOf(raw), raw)
		}
		var m map[string]any
		if err := json.Unmarshal(event.Metadata, &m); err != nil || m["timestamp"] != float64(1700000000) {
			t.Errorf("metadata %s", event.Metadata)
		}
	}
}

func TestErrors(t *testing.T) {
	err := j17.Errorf(j17.CodeConflict, "no %d", 1)
	if s := err.Because(nil).Error() + err.Because(nil).Stack(); s != err.Error() {
		t.Errorf("without a cause: %q", s)
	}
	if s := err.Because(io.EOF).Stack(); !strings.Contains(s, "j17_test.go:") || strings.Contains(s, "error.go:") {
		t.Errorf("the cause was met in\n%s", s)
	}
	located := err.At("data").Because(io.ErrUnexpectedEOF)
	if err.Path != "" || err.Err != nil {
		t.Error("the original was changed")
	}
	if located.Error() != "data: no 1 (unexpected EOF)" || !errors.Is(located, io.ErrUnexpectedEOF) {
		t.Error(located)
	}
	for _, tc := range []struct {
		err  error
		want j17.Code
	}{{nil, ""}, {io.EOF, j17.CodeInternal}, {fmt.Errorf("more: %w", located), j17.CodeConflict}} {
		if got := j17.CodeOf(tc.err); got != tc.want {
			t.Errorf("%v: %s", tc.err, got)
		}
	}
	seen := map[j17.Code]bool{}
	for _, c := range j17.Codes() {
		if seen[c] {
			t.Errorf("%s is listed twice", c)
		}
		seen[c] = true
	}
}

func TestEnvironments(t *testing.T) {
	for _, e := range j17.Environments() {
		if got, err := j17.ParseEnvironment(string(e)); got != e || err != nil {
			t.Error(got, err)
		}
	}
	if _, err := j17.ParseEnvironment("Prod"); err == nil {
		t.Error("Prod was accepted")
	}
	if j17.Prod.Title() != "Production" || j17.Staging.Title() != "Staging" || j17.Prod.LongName() != "production" {
		t.Error("names for sentences")
	}
	if k, ok := j17.ParseKey("order:0b6e:2026"); !ok || k != (j17.Key{Type: "order", ID: "0b6e:2026"}) ||
		k.String() != "order:0b6e:2026" {
		t.Error(k, ok)
	}
	for _, bad := range []string{"", "order", "order:", ":x"} {
		if _, ok := j17.ParseKey(bad); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestSiblings(t *testing.T) {
	want := []j17.Tenant{"ins_1/prod", "ins_1/test"}
	if diff := cmp.Diff(want, j17.TenantOf("ins_1", j17.Staging).Siblings()); diff != "" {
		t.Error(diff)
	}
	if others := j17.System.Siblings(); others != nil {
		t.Errorf("the system has %v", others)
	}
}

func TestMetadataTags(t *testing.T) {
	for metadata, want := range map[string]string{
		`{}`:    "[]",
		`null`:  "[]",
		`{"x":`: "[]",
		`{"actor":{"type":"user","id":"u1"},"timestamp":1}`:                        "[actor:user:u1]",
		`{"target":{"type":"a","id":"1:2"},"actor":{"type":"\u0075ser","id":"ü"}}`: "[actor:user:ü target:a:1:2]",
		`{"actor":{"type":"user"},"target":{"type":"a","id":1}}`:                   "[]",
		`{"actor":"user:1","Target":{"type":"a","id":"1"}}`:                        "[]",
		`{"actor":{"type":"user","id":"1","name":["x"]}}`:                          "[actor:user:1]",
		`{"correlation_id":"0B6E9D4E-6f0a-4f3c-8c53-6a1d2b7e9f10"}`:                "[correlation=0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10]",
		`{"correlation_id":"0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f1g"}`:                "[]",
		`{"correlation_id":17}`:                                                    "[]",
	} {
		if got := fmt.Sprint(j17.MetadataTags([]byte(metadata))); got != want {
			t.Errorf("%s has the tags %s, want %s", metadata, got, want)
		}
	}
}

// TestClone checks that a copy of an event is one and has bytes of its own.
func TestClone(t *testing.T) {
	raw, at := j17.AppendEvent(
		nil, j17.StreamID{Ms: 1}, j17.Key{Type: "a", ID: "1"}, "e", []byte(`{"n":1}`), []byte(`{"by":2}`), 7,
	)
	e := j17.Event{
		StreamID: j17.StreamID{Ms: 1}, Key: j17.Key{Type: "a", ID: "1"}, Version: 3, Type: "e", Timestamp: 7, Raw: raw,
		Data: at.DataOf(raw), Metadata: at.MetadataOf(raw), Kept: make([]byte, 32),
	}
	want := e
	want.Raw, want.Data, want.Metadata, want.Kept = slices.Clone(e.Raw), slices.Clone(e.Data), slices.Clone(e.Metadata),
		slices.Clone(e.Kept)
	c := e.Clone()
	for i := range raw {
		raw[i] = 'x'
	}
	e.Kept[0] = 1
	if diff := cmp.Diff(&want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLeaf(t *testing.T) {
	raw, _ := j17.AppendEvent(nil, j17.StreamID{Ms: 1}, j17.Key{Type: "a", ID: "1"}, "e", []byte("1"), []byte("{}"), 0)
	leaf := sha256.Sum256(append([]byte{0}, raw...))
	e := j17.Event{Raw: raw}
	if e.Erased() || e.Leaf() != leaf {
		t.Errorf("leaf %x of an event, want %x", e.Leaf(), leaf)
	}
	e = j17.Event{Raw: []byte("{}"), Kept: leaf[:]}
	if !e.Erased() || e.Leaf() != leaf {
		t.Errorf("leaf %x of an erased event, want %x", e.Leaf(), leaf)
	}
	if got, want := j17.Link([32]byte{1}, leaf),
		sha256.Sum256(append(append([]byte{1}, make([]byte, 31)...), leaf[:]...)); got != want {
		t.Errorf("link %x, want %x", got, want)
	}
}

// quoting is a cause that repeats what it was given.
type quoting struct{}

func (quoting) Error() string  { return "it said secret" }
func (quoting) Record() string { return "it failed" }

// TestRecord checks that what is kept of errors has codes, places and plain sentences, and nothing that was sent.
func TestRecord(t *testing.T) {
	found := j17.Errorf(j17.CodeSchemaViolation, "Event data failed").At("data.n")
	found.Errors = []j17.FieldError{
		{Pointer: "/data/n", Message: "It is secret."}, {Pointer: "/data/m", Message: "It is missing.", Plain: true},
	}
	for want, err := range map[string]error{
		"conflict":             j17.Errorf(j17.CodeConflict, "the handle %s is taken", "secret"),
		"conflict: It is late": j17.Errorf(j17.CodeConflict, "It is late"),
		"validation_failed at data.n: Event data failed /data/n; /data/m: It is missing.": fmt.Errorf("secret: %w", found),
		"invalid_spec: The spec has 2 errors": j17.Errorf(
			j17.CodeInvalidSpec, "The spec has %d errors", 2,
		),
		"custom_code_failed (it failed)": j17.Errorf(
			j17.CodeCustomCodeFailed, "it said %s", "secret",
		).Because(quoting{}),
		"it failed":        fmt.Errorf("secret: %w", quoting{}),
		"the disk is full": errors.New("the disk is full"),
	} {
		if got := j17.Record(err); got != want {
			t.Errorf("%v is kept as %q, want %q", err, got, want)
		}
	}
}
