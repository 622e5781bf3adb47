package proof_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17/internal/proof"
)

// TestCertificate reads what was written, and refuses what contradicts itself.
func TestCertificate(t *testing.T) {
	t.Parallel()
	at := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	root := strings.Repeat("ab", 32)
	c := &proof.Certificate{
		ID: "tmb_1", TombstoneID: "tmb_1", Instance: "ins_1", Environment: "prod", Key: "user:1", Status: "completed", LegalBasis: "art. 17 <1>", RequestID: "REQ-7",
		RequestedBy: map[string]any{"type": "operator", "id": "dpo@example.com"}, CreatedAt: at, ExecutableAt: at, ExecutedAt: at, Forced: true, PreTombstoneRoot: root, PreTombstoneSize: 9,
		Events: 3, Streams: []proof.ErasedStream{{"user:1", 2, "tombstoned", root, root}, {"note:2", 1, "tombstoned", root, root}},
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
		"", "j17 erasure certificate\n", strings.TrimSuffix(text, "\n"), text + "\n", text[4:], strings.Replace(text, `"events":3`, `"events":2`, 1), strings.Replace(text, `"events":3`, `"events":"3"`, 1),
		strings.Replace(text, `"events":3`, `"events": 3`, 1), strings.Replace(text, `{"key":"user:1"`, `{"key":"user:2"`, 1), strings.Replace(text, "abab", "ab", 1), strings.Replace(text, `"tombstone_id":"tmb_1"`, `"tombstone_id":""`, 1),
	} {
		if c, err := proof.ParseCertificate(wrong); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %+v, %v", wrong, c, err)
		}
	}
}
