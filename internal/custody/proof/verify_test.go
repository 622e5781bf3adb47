package proof_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"j17"
	"j17/internal/custody/proof"
)

// signer signs as a log does.
type signer struct {
	note.Signer
	vkey string
}

func newSigner(tb testing.TB) signer {
	tb.Helper()
	private, vkey, err := note.GenerateKey(rand.Reader, "test.example/prod")
	if err != nil {
		tb.Fatal(err)
	}
	s, err := note.NewSigner(private)
	if err != nil {
		tb.Fatal(err)
	}
	return signer{s, vkey}
}

func (s signer) sign(tb testing.TB, text string) string {
	tb.Helper()
	signed, err := note.Sign(&note.Note{Text: text}, s)
	if err != nil {
		tb.Fatal(err)
	}
	return string(signed)
}

// exported is an export of 12 events of three streams, of one of which all events were erased, and the leaves of the
// log.
func exported(tb testing.TB, s signer) (lines []string, leaves [][sha256.Size]byte) {
	tb.Helper()
	chains := map[string][sha256.Size]byte{}
	for i := range 12 {
		key := j17.Key{Type: "note", ID: fmt.Sprint(i % 3)}
		id := j17.StreamID{Ms: 1_700_000_000_000 + int64(i)/2, Seq: uint32(i) % 2}
		raw, _ := j17.AppendEvent(
			nil, id, key, "was_written", fmt.Appendf(nil, `{"n":%d,"s":",\"handle\":\"x"}`, i),
			[]byte(`{"actor":{"type":"user","id":"u"}}`), 1_700_000_000,
		)
		leaf := j17.Leaf(raw)
		leaves = append(leaves, leaf)
		if i%3 == 2 {
			sum := sha256.Sum256(raw)
			raw, _ = j17.AppendEvent(nil, id, key, "_was_tombstoned", fmt.Appendf(nil, `{"original_hash":"%x","original_type":"was_written","tombstone_id":"tmb_1"}`, sum), []byte(`{}`), 1_700_000_000)
		}
		chains[key.String()] = j17.Link(chains[key.String()], j17.Leaf(raw))
		line := string(raw[:len(raw)-1])
		if i < 3 {
			line += `,"handle":"nte_1","public_id":"N-1"`
		}
		line += fmt.Sprintf(`,"chain":"%x"`, chains[key.String()])
		if i%3 == 2 {
			line += fmt.Sprintf(`,"leaf":"%x"`, leaf)
		}
		lines = append(lines, line+"}\n")
	}
	return append(lines, s.end(tb, leaves)), leaves
}

// head is a signed checkpoint over leaves.
func (s signer) head(tb testing.TB, leaves [][sha256.Size]byte) string {
	tb.Helper()
	return s.sign(tb, proof.TreeHead{Origin: s.Name(), Size: uint64(len(leaves)), Root: proof.Root(leaves)}.Text())
}

// end is the line that ends a whole export.
func (s signer) end(tb testing.TB, leaves [][sha256.Size]byte) string {
	tb.Helper()
	raw, err := json.Marshal(map[string]string{"checkpoint": s.head(tb, leaves), "vkey": s.vkey})
	if err != nil {
		tb.Fatal(err)
	}
	return string(raw) + "\n"
}

// TestVerifyExport verifies an export, alone and against keys and older checkpoints.
func TestVerifyExport(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	lines, leaves := exported(t, s)
	whole := strings.Join(lines, "")
	root := proof.Root(leaves)
	for size := 0; size <= len(leaves); size++ {
		r, err := proof.Verify(strings.NewReader(whole), proof.VerifyOptions{
			Keys: []string{s.vkey}, Checkpoint: s.head(t, leaves[:size]),
		})
		if err != nil || r.Kind != proof.ExportFile || r.Events != 12 || r.Streams != 3 || r.Erased != 4 || !r.Whole ||
			r.Size != 12 || r.Root != hex.EncodeToString(root[:]) || r.OwnKey || *r.Extends != uint64(size) {
			t.Fatalf("against a checkpoint of %d: %+v, %v", size, r, err)
		}
	}
	if r, err := proof.Verify(strings.NewReader(whole), proof.VerifyOptions{}); err != nil || !r.OwnKey ||
		len(r.SignedBy) != 1 || r.SignedBy[0] != s.vkey {
		t.Errorf("by its own key: %+v, %v", r, err)
	}

	// A part of an export has chains alone.
	if r, err := proof.Verify(
		strings.NewReader(strings.Join(lines[4:12], "")), proof.VerifyOptions{},
	); err != nil || r.Whole || r.Partly != 3 || r.Events != 8 {
		t.Errorf("a part: %+v, %v", r, err)
	}
	if _, err := proof.Verify(strings.NewReader(strings.Join(lines[:12], "")), proof.VerifyOptions{
		Keys: []string{s.vkey},
	}); !isFailure(err) {
		t.Errorf("an export without its end, that has to be signed: %v", err)
	}

	// Other keys, other checkpoints.
	other := newSigner(t)
	changed := append([][sha256.Size]byte{leaves[1]}, leaves[1:]...)
	for what, o := range map[string]proof.VerifyOptions{
		"another key":                   {Keys: []string{other.vkey}},
		"no key":                        {Keys: []string{"key"}},
		"a checkpoint by another key":   {Keys: []string{s.vkey}, Checkpoint: other.head(t, leaves[:5])},
		"a checkpoint that was changed": {Checkpoint: strings.Replace(s.head(t, leaves[:5]), "\n5\n", "\n6\n", 1)},
		"a checkpoint of other events":  {Checkpoint: s.head(t, changed[:5])},
		"a larger checkpoint":           {Checkpoint: s.head(t, append(leaves[:12:12], leaves[0]))},
		"no checkpoint":                 {Checkpoint: "x"},
	} {
		if r, err := proof.Verify(strings.NewReader(whole), o); !isFailure(err) || r.Whole {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
}

func isFailure(err error) bool {
	_, ok := errors.AsType[*proof.Failure](err)
	return ok
}

// TestEveryByteOfAnExportCounts changes each byte of an export, leaves each line out, doubles it, and swaps it with the
// next one.
func TestEveryByteOfAnExportCounts(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	lines, _ := exported(t, s)
	refused := func(what, content string) {
		t.Helper()
		if r, err := proof.Verify(strings.NewReader(content), proof.VerifyOptions{
			Keys: []string{s.vkey},
		}); !isFailure(err) || r.Whole {
			t.Errorf("%s: %+v, %v", what, r, err)
		}
	}
	whole := strings.Join(lines, "")
	names := map[int]bool{} // the names of aggregates, which exports show beside the events, are in no hash
	for _, name := range []string{"nte_1", "N-1"} {
		for at := strings.Index(whole, `:"`+name); at >= 0; {
			for i := range len(name) {
				names[at+2+i] = true
			}
			next := strings.Index(whole[at+1:], `:"`+name)
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	// Whoever gives a key does not ask which one the export brings along.
	for i := range strings.LastIndex(whole, `","vkey"`) {
		if names[i] {
			continue
		}
		for _, bit := range []byte{0x01, 0x20} { // the second one makes large letters of small ones
			changed := []byte(whole)
			changed[i] ^= bit
			refused(fmt.Sprintf("bit %#x of byte %d", bit, i), string(changed))
		}
	}
	for i := range lines[:12] {
		without := strings.Join(lines[:i], "") + strings.Join(lines[i+1:], "")
		refused(fmt.Sprintf("without line %d", i+1), without)
		refused(fmt.Sprintf("line %d twice", i+1), strings.Join(lines[:i+1], "")+strings.Join(lines[i:], ""))
		if i < 11 {
			refused(
				fmt.Sprintf("line %d behind the next one", i+1),
				strings.Join(lines[:i], "")+lines[i+1]+lines[i]+strings.Join(lines[i+2:], ""),
			)
		}
	}
	refused("more behind the end", whole+lines[0])
	refused("nothing", "")
}

// TestForgeries are changes by somebody who mends what he can without the key.
func TestForgeries(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	lines, leaves := exported(t, s)

	// The last event of a stream, with its chain rebuilt: with and without the leaf that the log has.
	read := func(i int) proof.Line {
		l, err := proof.ReadLine([]byte(strings.TrimSuffix(lines[i], "\n")))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	before, last := read(6), read(9)
	forged := bytes.Replace(last.Event.Raw, []byte(`"n":9`), []byte(`"n":8`), 1)
	line := fmt.Sprintf(`%s,"chain":"%x"`, forged[:len(forged)-1], j17.Link(*before.Chain, j17.Leaf(forged)))
	for what, tail := range map[string]string{
		"": "}\n", "with the leaf": fmt.Sprintf(`,"leaf":"%x"}`+"\n", leaves[9]),
	} {
		content := strings.Join(lines[:9], "") + line + tail + strings.Join(lines[10:], "")
		_, err := proof.Verify(strings.NewReader(content), proof.VerifyOptions{Keys: []string{s.vkey}})
		failure, ok := errors.AsType[*proof.Failure](err)
		if !ok || what != "" && failure.Line != 10 {
			t.Errorf("forged %s: %v", what, err)
		}
	}

	// What is named is the first event that is wrong, with its position and its key.
	large := strings.ToUpper(fmt.Sprintf("%x", *read(4).Chain))
	for _, tc := range []struct {
		content, position string
	}{
		{strings.Replace(strings.Join(lines, ""), `"n":4`, `"n":5`, 1), "1700000000002-0"},
		{strings.Join(lines[:4], "") + strings.Join(lines[5:], ""), "1700000000003-1"},
		{strings.Join(lines[1:], ""), "1700000000001-1"},
		{strings.Replace(strings.Join(lines[1:], ""), `"n":9`, `"n":5`, 1), "1700000000001-1"},
		{strings.Replace(strings.Join(lines, ""), `{"n":4`, `{"n" 4`, 1), ""},
		{strings.Replace(strings.Join(lines, ""), `{"n":4`, `{"n": 4`, 1), "1700000000002-0"},
		{strings.Replace(strings.Join(lines, ""), strings.ToLower(large), large, 1), "1700000000002-0"},
	} {
		_, err := proof.Verify(strings.NewReader(tc.content), proof.VerifyOptions{})
		if failure, ok := errors.AsType[*proof.Failure](err); !ok || failure.Position != tc.position ||
			tc.position != "" && !strings.HasPrefix(failure.Key, "note:") {
			t.Errorf("%v, want event %q", err, tc.position)
		}
	}
}

// TestVerifyNotes verifies a checkpoint and a certificate alone.
func TestVerifyNotes(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	_, leaves := exported(t, s)
	signed := s.head(t, leaves)
	if r, err := proof.Verify(strings.NewReader(signed), proof.VerifyOptions{
		Keys: []string{s.vkey},
	}); err != nil || r.Kind != proof.CheckpointFile || r.Size != 12 || r.Origin != "test.example/prod" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := proof.Verify(strings.NewReader(signed), proof.VerifyOptions{}); !errors.Is(err, proof.ErrNoKey) {
		t.Errorf("without a key: %v", err)
	}
	for _, content := range []string{
		signed[1:], signed + "x", "x", strings.Replace(signed, "\n12\n", "\n13\n", 1), s.sign(
			t, "origin\n012\n"+base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n",
		), s.sign(t, "one line\n"),
		s.sign(t, "origin\n12\nAAAA\n"), s.sign(t, "j17 erasure certificate\n{}\n"),
		s.sign(t, "origin\n-1\n"+base64.StdEncoding.EncodeToString(make([]byte, 32))+"\n"),
	} {
		if _, err := proof.Verify(strings.NewReader(content), proof.VerifyOptions{
			Keys: []string{s.vkey},
		}); !isFailure(err) {
			t.Errorf("%q: %v", content, err)
		}
	}
}

// FuzzVerify has arbitrary files verified: none but what was signed is whole.
func FuzzVerify(f *testing.F) {
	s := newSigner(f)
	lines, leaves := exported(f, s)
	whole := strings.Join(lines, "")
	f.Add(whole)
	f.Add(strings.Join(lines[:3], ""))
	f.Add(s.head(f, leaves))
	f.Add("j17 erasure certificate\n{}\n")
	f.Fuzz(func(t *testing.T, content string) {
		r, err := proof.Verify(strings.NewReader(content), proof.VerifyOptions{Keys: []string{s.vkey}})
		if err == nil && (r.Kind != proof.ExportFile || r.Events != 12) && content != s.head(t, leaves) &&
			!strings.HasPrefix(content, s.Name()) {
			t.Errorf("%+v", r)
		}
	})
}
