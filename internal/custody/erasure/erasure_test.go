package erasure_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/custody/erasure"
	"j17/internal/custody/proof"
)

// chainOf returns the chain over the bytes of events.
func chainOf(all []*j17.Event) (chain [32]byte) {
	for _, e := range all {
		chain = j17.Link(chain, j17.Leaf(e.Raw))
	}
	return chain
}

// rootOf returns the root of RFC 6962 over the bytes of events, by its definition.
func rootOf(all []*j17.Event) [32]byte {
	switch len(all) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return j17.Leaf(all[0].Raw)
	}
	k := 1
	for 2*k < len(all) {
		k *= 2
	}
	left, right := rootOf(all[:k]), rootOf(all[k:])
	return sha256.Sum256(append(append([]byte{1}, left[:]...), right[:]...))
}

func TestLife(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for n := range 5 {
		f.write(t, "user/"+alice+"/was_renamed", fmt.Sprintf(`{"name":"secret %d"}`, n), alice, "")
	}
	f.write(t, "plain/"+alice+"/was_written", `{"of":"nobody"}`, bob, "")
	before := f.events(t, "user", alice)

	// It waits for its time, and for somebody who wants it executed.
	basis, days := "gdpr_article_17", 7
	made, err := f.tombs.Create(t.Context(), tenant, "user", alice, wire.NewTombstone{
		LegalBasis: &basis, GracePeriodDays: &days, RequestedBy: json.RawMessage(`{ "id": "dpo" }`),
	})
	if err != nil {
		t.Fatal(err)
	}
	if made.Status != "pending" || made.ExecutableAt.Sub(made.CreatedAt) != 7*24*time.Hour ||
		string(made.RequestedBy) != `{"id":"dpo"}` || *made.LegalBasis != basis {
		t.Errorf("made is %+v", made)
	}
	f.Clock.Advance(7*24*time.Hour - time.Second)
	_, err = f.tombs.Execute(t.Context(), tenant, made.ID, false)
	wantCode(t, err, j17.CodeGracePeriod)
	f.Clock.Advance(time.Second)
	f.settle(t)
	if got := f.tombstone(t, made.ID); got.Status != "pending" {
		t.Errorf("without having been asked for it is %s", got.Status)
	}
	begun, err := f.tombs.Execute(t.Context(), tenant, made.ID, false)
	if err != nil || begun.Status != "executing" || begun.Forced {
		t.Fatalf("begun is %+v, %v", begun, err)
	}
	f.settle(t)

	// What stands there then.
	got := f.tombstone(t, made.ID)
	after := f.events(t, "user", alice)
	if got.Status != "completed" || affected(got.AffectedStreams) != "user:"+alice+" 5" || *got.PreTombstoneSize != 6 ||
		!got.ExecutedAt.Equal(f.Clock.Now().Truncate(time.Second)) {
		t.Errorf("completed is %+v", got)
	}
	for i, e := range after {
		want := before[i]
		var data map[string]string
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		original, chain := sha256.Sum256(want.Raw), chainOf(before[:i+1])
		if diff := cmp.Diff(data, map[string]string{
			"original_hash": hex.EncodeToString(original[:]), "chain_hash": hex.EncodeToString(chain[:]),
			"original_type": "was_renamed",
			"tombstone_id":  made.ID, "tombstoned_at": got.ExecutedAt.Format(time.RFC3339),
		}); diff != "" {
			t.Error(diff)
		}
		if e.Type != "_was_tombstoned" || e.StreamID != want.StreamID || e.Timestamp != want.Timestamp ||
			e.Leaf() != want.Leaf() ||
			!strings.HasPrefix(string(e.Metadata), `{"actor":{"type":"system","id":"system"},"timestamp":`) {
			t.Errorf("event %d is %s", i, e.Raw)
		}
	}
	rootBefore, rootAfter := rootOf(before), rootOf(after)
	if own := got.AffectedStreams[0]; own.RootBefore != hex.EncodeToString(rootBefore[:]) ||
		own.RootAfter != hex.EncodeToString(rootAfter[:]) {
		t.Errorf("the roots are %+v", own)
	}
	heads, err := f.Store.Heads(t.Context(), tenant, []j17.Key{{Type: "user", ID: alice}})
	if err != nil || heads[0].Generation != 1 || heads[0].Now() != chainOf(after) {
		t.Errorf("the head is %+v, %v", heads, err)
	}

	// Who was told.
	if len(f.holder.erased) != 1 || f.holder.erased[0].Keys[0].ID != alice ||
		f.holder.erased[0].TombstoneID != made.ID {
		t.Errorf("the holder was told of %+v", f.holder.erased)
	}
	if diff := cmp.Diff(f.acts, []erasure.Act{
		{Action: "tombstone.create", Tombstone: made.ID, Key: "user:" + alice},
		{Action: "tombstone.execute", Tombstone: made.ID, Key: "user:" + alice, By: "somebody"},
	}); diff != "" {
		t.Error(diff)
	}

	// It is over.
	_, err = f.tombs.Execute(t.Context(), tenant, made.ID, true)
	wantCode(t, err, j17.CodeConflict)
	_, err = f.tombs.Cancel(t.Context(), tenant, made.ID)
	wantCode(t, err, j17.CodeConflict)
}

// TestRequests makes requests that are wrong, or come at the wrong time.
func TestRequests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "user/"+alice+"/was_created", `{}`, alice, "")
	long, minus, far := strings.Repeat("x", 1001), -1, 3651
	for path, ask := range map[string]wire.NewTombstone{
		"legal_basis": {LegalBasis: &long}, "request_id": {RequestID: &long},
		"requested_by": {RequestedBy: json.RawMessage(`"me"`)}, "grace_period_days": {GracePeriodDays: &minus},
	} {
		_, err := f.tombs.Create(t.Context(), tenant, "user", alice, ask)
		wantCode(t, err, j17.CodeInvalidField)
		if e, ok := err.(*j17.Error); !ok || e.Path != path { //nolint:errorlint // it is the error itself
			t.Errorf("%s: %v", path, err)
		}
	}
	_, err := f.tombs.Create(t.Context(), tenant, "user", alice, wire.NewTombstone{GracePeriodDays: &far})
	wantCode(t, err, j17.CodeInvalidField)
	for where, want := range map[[2]string]j17.Code{
		{"user", bob}: j17.CodeAggregateNotFound, {"ghost", bob}: j17.CodeUnknownType,
		{"user", "no-id"}: j17.CodeInvalidIdentifier, {"no\x00type", "\x00"}: j17.CodeUnknownType,
	} {
		_, err := f.tombs.Create(t.Context(), tenant, where[0], where[1], wire.NewTombstone{})
		wantCode(t, err, want)
	}

	// One at a time.
	first := f.ask(t, alice)
	_, err = f.tombs.Create(t.Context(), tenant, "user", alice, wire.NewTombstone{Again: true})
	wantCode(t, err, j17.CodeConflict)
	if raw, _ := json.Marshal(err); !strings.Contains(err.Error(), first.ID) {
		t.Errorf("the conflict does not name the other: %s", raw)
	}
	if got, err := f.tombs.Cancel(t.Context(), tenant, first.ID); err != nil || got.Status != "cancelled" {
		t.Errorf("cancelled is %+v, %v", got, err)
	}
	_, err = f.tombs.Cancel(t.Context(), tenant, first.ID)
	wantCode(t, err, j17.CodeConflict)
	_, err = f.tombs.Execute(t.Context(), tenant, first.ID, true)
	wantCode(t, err, j17.CodeConflict)
	_, err = f.tombs.Certificate(t.Context(), tenant, first.ID)
	wantCode(t, err, j17.CodeConflict)
	for _, id := range []string{"tmb_zzzzzzzzzzzzzzz", "", "\x00", strings.Repeat("x", 2000), first.ID + "/x"} {
		_, err = f.tombs.Get(t.Context(), tenant, id)
		wantCode(t, err, j17.CodeNotFound)
	}

	// Of a completed one there is another only where there is something new.
	done := f.erase(t)
	if done.Status != "completed" || !done.Forced || !strings.Contains(f.logs.String(), done.ID) {
		t.Errorf("done is %+v; logged was %s", done, f.logs)
	}
	_, err = f.tombs.Create(t.Context(), tenant, "user", alice, wire.NewTombstone{Again: true})
	wantCode(t, err, j17.CodeConflict)
	f.write(t, "user/"+alice+"/was_created", `{"name":"again"}`, alice, "")
	_, err = f.tombs.Create(t.Context(), tenant, "user", alice, wire.NewTombstone{})
	wantCode(t, err, j17.CodeConflict)
	markers := f.events(t, "user", alice)[:1]

	// One that is cancelled leaves the completed one in its place.
	again, err := f.tombs.Create(t.Context(), tenant, "user", alice, wire.NewTombstone{Again: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.tombs.Cancel(t.Context(), tenant, again.ID); err != nil {
		t.Fatal(err)
	}
	_, err = f.tombs.Create(t.Context(), tenant, "user", alice, wire.NewTombstone{})
	wantCode(t, err, j17.CodeConflict)
	if !strings.Contains(fmt.Sprint(err), done.ID) {
		t.Errorf("the conflict does not name the completed one: %v", err)
	}
	again, err = f.tombs.Create(t.Context(), tenant, "user", alice, wire.NewTombstone{Again: true})
	if err != nil {
		t.Fatal(err)
	}
	f.force(t, again.ID)
	f.settle(t)
	after := f.events(t, "user", alice)
	if string(after[0].Raw) != string(markers[0].Raw) || !strings.Contains(string(after[1].Data), again.ID) {
		t.Errorf("after another erasure there are %s and %s", after[0].Raw, after[1].Raw)
	}
}

// TestCascade erases streams that name somebody, in the ways that the spec says.
func TestCascade(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	f.write(t, "user/"+alice+"/was_created", `{}`, bob, "")
	f.write(t, "comment/"+id(1)+"/was_written", `{}`, alice, "")
	f.write(t, "comment/"+id(1)+"/was_written", `{}`, bob, "")
	f.write(t, "comment/"+id(2)+"/was_written", `{}`, bob, alice)
	f.write(t, "comment/"+id(3)+"/was_written", `{}`, bob, "")
	f.write(t, "comment/"+id(3)+"/was_written", `{}`, alice, bob)
	f.write(t, "mention/"+id(4)+"/was_made", `{}`, bob, alice)
	f.write(t, "mention/"+id(5)+"/was_made", `{}`, alice, "")
	f.write(t, "order/"+id(6)+"/was_placed", `{}`, alice, alice)
	f.write(t, "plain/"+id(7)+"/was_written", `{}`, alice, alice)
	f.write(t, "comment/"+id(8)+"/was_written", `{}`, alice, alice)
	want := fmt.Sprintf("user:%s 1, comment:%s 2, comment:%s 2, comment:%s 1, mention:%s 1", alice, id(1), id(3), id(8), id(4))

	// A dry run tells so, and stores nothing.
	tried, err := f.tombs.Try(t.Context(), tenant, "user", alice, wire.NewTombstone{})
	if err != nil || !tried.DryRun || tried.More || affected(tried.AffectedStreams) != want {
		t.Errorf("tried is %s, %+v, %v", affected(tried.AffectedStreams), tried, err)
	}
	if page, _, err := f.tombs.List(t.Context(), tenant, "", 0, 10); len(page) != 0 || err != nil {
		t.Errorf("after a dry run there are %+v, %v", page, err)
	}

	done := f.erase(t)
	if got := affected(done.AffectedStreams); got != want {
		t.Errorf("affected are %s\nwant %s", got, want)
	}
	for path, want := range map[[2]string]string{
		{"comment", id(2)}: "was_written", {"mention", id(5)}: "was_made", {"order", id(6)}: "was_placed",
		{"plain", id(7)}:   "was_written",
		{"comment", id(1)}: "_was_tombstoned _was_tombstoned", {"comment", id(3)}: "_was_tombstoned _was_tombstoned",
		{"mention", id(4)}: "_was_tombstoned",
	} {
		if got := f.types(t, path[0], path[1]); got != want {
			t.Errorf("%s has %s, want %s", path, got, want)
		}
	}
	streams, next, err := f.tombs.Streams(t.Context(), tenant, done.ID, "", 2)
	if err != nil || len(streams) != 2 || next != streams[1].Key {
		t.Fatalf("streams are %+v, %q, %v", streams, next, err)
	}
	rest, next, err := f.tombs.Streams(t.Context(), tenant, done.ID, next, 10)
	if err != nil || len(rest) != 3 || next != "" || rest[0].Key <= streams[1].Key {
		t.Errorf("the rest are %+v, %q, %v", rest, next, err)
	}
}

// TestForgottenTypes erases an aggregate whose type the spec has no more.
func TestForgottenTypes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "user/"+alice+"/was_created", `{}`, alice, "")
	f.DeploySource(t, strings.Replace(people, `"user": {`, `"person": {`, 1))
	if done := f.erase(t); done.Status != "completed" {
		t.Errorf("it is %+v", done)
	}
	f.Undeploy(tenant)
	_, err := f.tombs.Create(t.Context(), tenant, "user", bob, wire.NewTombstone{})
	wantCode(t, err, j17.CodeNoSpec)
}

// TestLists looks at pages of tombstones.
func TestLists(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var ids []string
	for n := range 5 {
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
		f.write(t, "user/"+id+"/was_created", `{}`, alice, "")
		ids = append(ids, f.ask(t, id).ID)
		f.Clock.Advance(time.Millisecond)
	}
	if _, err := f.tombs.Cancel(t.Context(), tenant, ids[3]); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		of            erasure.Status
		offset, limit int
		want          string
		next          int
	}{
		{"", 0, 10, "4 3 2 1 0", 0},
		{"", 0, 2, "4 3", 2},
		{"", 2, 2, "2 1", 4},
		{"", 4, 2, "0", 0},
		{"", 5, 2, "", 0},
		{"", 1_000_000_000, 2, "", 0},
		{erasure.Pending, 0, 2, "4 2", 2},
		{erasure.Pending, 2, 10, "1 0", 0},
		{erasure.Cancelled, 0, 10, "3", 0},
		{erasure.Completed, 0, 10, "", 0},
	} {
		page, next, err := f.tombs.List(t.Context(), tenant, c.of, c.offset, c.limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, row := range page {
			for n, id := range ids {
				if id == row.ID {
					got = append(got, fmt.Sprint(n))
				}
			}
		}
		if strings.Join(got, " ") != c.want || next != c.next {
			t.Errorf("%+v gives %v, %d", c, got, next)
		}
	}
}

// TestCertificate reads what a certificate says.
func TestCertificate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.write(t, "user/"+alice+"/was_created", `{"name":"secret"}`, alice, "")
	f.write(t, "comment/"+alice+"/was_written", `{"text":"secret"}`, alice, "")
	done := f.erase(t)
	text, err := f.tombs.Certificate(t.Context(), tenant, done.ID)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	if len(lines) != 3 || lines[0] != "j17 erasure certificate" || lines[2] != "signed by "+string(tenant) ||
		strings.Contains(text, "secret") {
		t.Fatalf("the certificate is %s", text)
	}
	got, err := proof.ParseCertificate(lines[0] + "\n" + lines[1] + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if got.TombstoneID != done.ID || got.Key != done.Key || got.Instance != "ins_test" || got.Environment != j17.Prod ||
		got.Events != 2 || !got.Forced ||
		got.PreTombstoneRoot != *done.PreTombstoneRoot || got.PreTombstoneSize != 2 ||
		!got.ExecutedAt.Equal(*done.ExecutedAt) || len(got.Streams) != 2 ||
		got.Streams[0].RootAfter != done.AffectedStreams[0].RootAfter || string(got.Environment) != "prod" {
		t.Errorf("certified is %+v", got)
	}
}
