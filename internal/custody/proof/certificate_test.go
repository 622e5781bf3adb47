package proof_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/custody/proof"
)

// TestCertificate reads what was written, and refuses what contradicts itself.
func TestCertificate(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	root := strings.Repeat("ab", 32)
	c := &proof.Certificate{
		ID: "tmb_1", TombstoneID: "tmb_1", Instance: "ins_1", Environment: "prod", Key: "user:1", Status: "completed",
		LegalBasis: "art. 17 <1>", RequestID: "REQ-7",
		RequestedBy: map[string]any{"type": "operator", "id": "dpo@example.com"}, CreatedAt: at, ExecutableAt: at,
		ExecutedAt: at, Forced: true, PreTombstoneRoot: root, PreTombstoneSize: 9,
		Events: 3, Streams: []proof.ErasedStream{
			{"user:1", 2, "tombstoned", root, root}, {"note:2", 1, "tombstoned", root, root},
		},
	}
	text, err := c.Text()
	if err != nil || !strings.HasPrefix(text, "j17 erasure certificate\n{\"id\":\"tmb_1\",") || strings.Count(text, "\n") != 2 || !strings.Contains(text, "<1>") {
		t.Fatalf("%q, %v", text, err)
	}
	read, err := proof.ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, read); diff != "" {
		t.Error(diff)
	}
	for _, wrong := range []string{
		"", "j17 erasure certificate\n", strings.TrimSuffix(text, "\n"), text + "\n", text[4:], strings.Replace(
			text, `"events":3`, `"events":2`, 1,
		), strings.Replace(text, `"events":3`, `"events":"3"`, 1),
		strings.Replace(text, `"events":3`, `"events": 3`, 1), strings.Replace(
			text, `{"key":"user:1"`, `{"key":"user:2"`, 1,
		), strings.Replace(text, "abab", "ab", 1),
		strings.Replace(text, `"tombstone_id":"tmb_1"`, `"tombstone_id":""`, 1),
	} {
		if c, err := proof.ParseCertificate(wrong); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", wrong, c, err)
		}
	}
}

// TestStreamsOfACertificate holds the list of all erased streams against a certificate that lists some of them.
func TestStreamsOfACertificate(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	at, root := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC), strings.Repeat("ab", 32)
	var all []proof.ErasedStream
	var tree proof.Tree
	for _, id := range []string{"0", "1", "2", "<3>"} {
		e := proof.ErasedStream{Key: "note:" + id, Events: 2, Action: "tombstoned", RootBefore: root, RootAfter: root}
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		tree.Add(j17.Leaf(line))
		all = append(all, e)
	}
	signed := func(change func(*proof.Certificate)) string {
		t.Helper()
		c := &proof.Certificate{
			ID: "tmb_1", TombstoneID: "tmb_1", Key: "note:1", Status: "completed", CreatedAt: at, ExecutableAt: at,
			ExecutedAt: at, PreTombstoneRoot: root, Events: 8,
			Streams: []proof.ErasedStream{all[1], all[0]}, AffectedCount: 4,
			AffectedRoot: fmt.Sprintf("%x", tree.Root()),
		}
		change(c)
		text, err := c.Text()
		if err != nil {
			t.Fatal(err)
		}
		return s.sign(t, text)
	}
	list := func(change func([]proof.ErasedStream) []proof.ErasedStream) string {
		t.Helper()
		raw, err := json.Marshal(change(slices.Clone(all)))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	same := func(all []proof.ErasedStream) []proof.ErasedStream { return all }
	some, whole := signed(func(*proof.Certificate) {}),
		signed(func(c *proof.Certificate) { c.Streams, c.AffectedCount, c.AffectedRoot = all, 0, "" })
	page := func(from, to int) string {
		return `{"ok":true,"streams":` + list(
			func(all []proof.ErasedStream) []proof.ErasedStream { return all[from:to] },
		) + `,"next":null}` + "\n"
	}

	// It holds, as the command line prints it and page by page.
	for _, certificate := range []string{some, whole} {
		for _, streams := range []string{list(same), page(0, 3) + page(3, 4)} {
			r, err := proof.Verify(strings.NewReader(certificate), proof.VerifyOptions{
				Keys: []string{s.vkey}, Streams: strings.NewReader(streams),
			})
			if err != nil || !r.AllStreams || r.Streams != 4 || r.Events != 8 {
				t.Errorf("%s: %+v, %v", streams, r, err)
			}
		}
	}
	if r, err := proof.Verify(strings.NewReader(some), proof.VerifyOptions{
		Keys: []string{s.vkey},
	}); err != nil || r.AllStreams {
		t.Errorf("without the list: %+v, %v", r, err)
	}

	// Nothing may be another, missing, added or elsewhere.
	for name, change := range map[string]func([]proof.ErasedStream) []proof.ErasedStream{
		"one is missing": func(all []proof.ErasedStream) []proof.ErasedStream { return all[:3] },
		"one is twice":   func(all []proof.ErasedStream) []proof.ErasedStream { return append(all, all[3]) },
		"another key":    func(all []proof.ErasedStream) []proof.ErasedStream { all[2].Key = "note:9"; return all },
		"another root": func(all []proof.ErasedStream) []proof.ErasedStream {
			all[3].RootAfter = strings.Repeat("cd", 32)
			return all
		},
		"another root of a listed one": func(all []proof.ErasedStream) []proof.ErasedStream {
			all[1].RootAfter = strings.Repeat("cd", 32)
			return all
		},
		"events moved": func(all []proof.ErasedStream) []proof.ErasedStream {
			all[2].Events, all[3].Events = 1, 3
			return all
		},
	} {
		_, err := proof.Verify(strings.NewReader(some), proof.VerifyOptions{
			Keys: []string{s.vkey}, Streams: strings.NewReader(list(change)),
		})
		if !isFailure(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, wrong := range []string{"", "x", "[", `{"streams":1}`, `{"streams":[1]}`, `"x"`, `[{"key":1}]`} {
		if _, err := proof.Verify(strings.NewReader(some), proof.VerifyOptions{
			Keys: []string{s.vkey}, Streams: strings.NewReader(wrong),
		}); !isFailure(err) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	lines, _ := exported(t, s)
	if _, err := proof.Verify(strings.NewReader(strings.Join(lines, "")), proof.VerifyOptions{
		Streams: strings.NewReader("[]"),
	}); !isFailure(err) {
		t.Errorf("of an export: %v", err)
	}
}
