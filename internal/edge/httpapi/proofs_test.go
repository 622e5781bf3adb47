package httpapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"j17"
	shapes "j17/internal/base/wire"
	"j17/internal/custody/proof"
)

// decoded reads a JSON answer with a status.
func decoded[T any](tb testing.TB, a answer, status int) (shape T) {
	tb.Helper()
	if a.status != status {
		tb.Fatalf("%d %s, want %d", a.status, a.body, status)
	}
	if err := json.Unmarshal([]byte(a.body), &shape); err != nil {
		tb.Fatal(err)
	}
	return shape
}

func hashed(tb testing.TB, texts ...string) (hashes [][sha256.Size]byte) {
	tb.Helper()
	for _, text := range texts {
		raw, err := hex.DecodeString(text)
		if err != nil || len(raw) != sha256.Size {
			tb.Fatalf("%q is no hash", text)
		}
		hashes = append(hashes, [sha256.Size]byte(raw))
	}
	return hashes
}

const proven = "/note/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10"

// TestProofsOfAStream compares tree, proofs and chain with the lines that are served, and asks for what is not there.
func TestProofsOfAStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	for range 5 {
		if a := f.do(t, "POST", proven+"/was_written", `{"data":{"by":1},`+actor+`}`); a.status != 201 {
			t.Fatal(a)
		}
	}
	var leaves [][sha256.Size]byte
	var chain [sha256.Size]byte
	for line := range strings.Lines(f.do(t, "GET", proven+"/events", "", "Accept: application/x-ndjson").body) {
		leaf := j17.Leaf([]byte(strings.TrimSuffix(line, "\n")))
		leaves, chain = append(leaves, leaf), j17.Link(chain, leaf)
	}
	root := proof.Root(leaves)
	if got := decoded[shapes.StreamRoot](
		t, f.do(t, "GET", proven+"/audit/merkle-root", ""), 200,
	); got != (shapes.StreamRoot{Root: hex.EncodeToString(root[:]), Size: 5}) {
		t.Errorf("the root is %+v", got)
	}
	if got := decoded[shapes.ChainCheck](
		t, f.do(t, "GET", proven+"/audit/verify-chain", ""), 200,
	); got != (shapes.ChainCheck{Valid: true, Length: 5, Head: hex.EncodeToString(chain[:])}) {
		t.Errorf("the chain is %+v", got)
	}
	for i := range leaves {
		a := f.do(t, "GET", fmt.Sprint(proven, "/audit/merkle-proof/", i), "")
		p := decoded[shapes.InclusionProof](t, a, 200)
		if p.Index != uint64(i) || p.Size != 5 || hashed(t, p.LeafHash)[0] != leaves[i] ||
			!proof.CheckInclusion(p.Index, p.Size, leaves[i], hashed(t, p.Proof...), root) {
			t.Errorf("the proof of event %d is %+v", i, p)
		}
		body := strings.Replace(a.body, `"ok":true,`, "", 1)
		if v := decoded[shapes.Validity](t, f.do(t, "POST", proven+"/audit/merkle-verify", body), 200); !v.Valid {
			t.Errorf("the proof of event %d does not hold", i)
		}
		if v := decoded[shapes.Validity](
			t, f.do(t, "POST", proven+"/audit/merkle-verify", strings.Replace(body, p.Root[:8], "00000000", 1)), 200,
		); v.Valid {
			t.Errorf("the proof of event %d holds for another root", i)
		}
	}

	const zero = "0000000000000000000000000000000000000000000000000000000000000000"
	for body, path := range map[string]string{
		`{}`: "index", `{"index":2}`: "size",
		`{"index":"2","size":5,"leaf_hash":"` + zero + `","proof":[],"root":"` + zero + `"}`: "index",
		`{"index":-1,"size":5,"leaf_hash":"` + zero + `","proof":[],"root":"` + zero + `"}`:  "index",
		`{"index":0,"size":0,"leaf_hash":"` + zero + `","proof":[],"root":"` + zero + `"}`:   "size",
		`{"index":0,"size":5,"leaf_hash":"zz","proof":[],"root":"` + zero + `"}`:             "leaf_hash", `{"index":0,"size":5,"leaf_hash":"` + zero + `","proof":"` + zero + `","root":"` + zero + `"}`: "proof",
		`{"index":0,"size":5,"leaf_hash":"` + zero + `","proof":[1],"root":"` + zero + `"}`:       "proof",
		`{"index":0,"size":5,"leaf_hash":"` + zero + `","proof":["00"],"root":"` + zero + `"}`:    "proof[0]",
		`{"index":0,"size":5,"leaf_hash":"` + zero + `","proof":[],"root":"` + zero[:62] + `zz"}`: "root",
		`{"index":0,"more":1}`: "more",
	} {
		if a := f.do(t, "POST", proven+"/audit/merkle-verify", body); a.status != 400 || a.member(t, "path") != path {
			t.Errorf("%s: %d %s, want 400 at %s", body, a.status, a.body, path)
		}
	}
	for path, status := range map[string]int{
		proven + "/audit/merkle-proof/5": 404, proven + "/audit/merkle-proof/x": 400, "/note/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f11/audit/merkle-root": 404,
		"/note/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f11/audit/verify-chain": 404, "/ghost/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f11/audit/merkle-root": 404, "/note/nobody/audit/verify-chain": 422,
	} {
		if a := f.do(t, "GET", path, ""); a.status != status {
			t.Errorf("GET %s: %d %s, want %d", path, a.status, a.body, status)
		}
	}
}

// TestProofsOfTheLog checks the checkpoint by the keys, and proofs by the checkpoint.
func TestProofsOfTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	head := func() proof.TreeHead {
		var vkeys []string
		for _, k := range decoded[shapes.LogKeys](t, f.do(t, "GET", "/_audit/keys", ""), 200).Keys {
			vkeys = append(vkeys, k.VKey)
		}
		text, by, err := proof.Open(f.do(t, "GET", "/_audit/checkpoint", "").body, vkeys)
		if err != nil || len(by) != 1 {
			t.Fatal(by, err)
		}
		h, err := proof.ParseTreeHead(text)
		if err != nil || h.Origin != "app.j17.example/prod" {
			t.Fatal(h, err)
		}
		return h
	}
	if h := head(); h.Size != 0 {
		t.Errorf("the log of an empty environment: %+v", h)
	}
	var ids []string
	var heads []proof.TreeHead
	for range 4 {
		ids = append(ids, f.do(t, "POST", proven+"/was_written", `{"data":{"by":1},`+actor+`}`).member(t, "stream_id"))
		heads = append(heads, head())
	}
	for i, id := range ids {
		for _, query := range []string{fmt.Sprint("index=", i), "stream_id=" + id} {
			p := decoded[shapes.InclusionProof](t, f.do(t, "GET", "/_audit/proof/inclusion?"+query, ""), 200)
			if p.Index != uint64(i) || p.Size != 4 ||
				!proof.CheckInclusion(p.Index, p.Size, hashed(t, p.LeafHash)[0], hashed(t, p.Proof...), heads[3].Root) {
				t.Errorf("%s: %+v", query, p)
			}
		}
		p := decoded[shapes.ConsistencyProof](
			t, f.do(t, "GET", fmt.Sprint("/_audit/proof/consistency?from=", i+1), ""), 200,
		)
		if p.To != 4 || !proof.CheckConsistency(p.From, p.To, hashed(t, p.Proof...), heads[i].Root, heads[3].Root) {
			t.Errorf("from %d: %+v", i+1, p)
		}
	}
	for query, status := range map[string]int{
		"inclusion": 400, "inclusion?index=x": 400, "inclusion?index=4": 404, "inclusion?index=0&stream_id=" +
			ids[0]: 400, "inclusion?stream_id=1-0": 404, "inclusion?stream_id=" + ids[3] + "&size=3": 404,
		"inclusion?index=0&size=5": 404, "inclusion?index=0&size=0": 400, "inclusion?index=3&size=4": 200,
		"consistency": 400, "consistency?from=0": 400, "consistency?from=5": 404, "consistency?from=1&to=5": 404,
		"consistency?from=3&to=2": 400, "consistency?from=3&to=3": 200, "inclusion?stream_id=1700000000000-4000000000": 404,
	} {
		if a := f.do(t, "GET", "/_audit/proof/"+query, ""); a.status != status {
			t.Errorf("%s: %d %s, want %d", query, a.status, a.body, status)
		}
	}
}
