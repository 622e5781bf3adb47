package checkpoint_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/core/engine/enginetest"
	"j17/internal/core/part"
	"j17/internal/storage/store"
)

const counters = "counter/00000000-0000-4000-a000-%012d/was_counted"

// counted writes to so many counters.
func (f *fixture) counted(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		f.Post(t, fmt.Sprintf(counters, i), enginetest.Body(`{"by":1}`))
	}
}

// made makes a checkpoint.
func (f *fixture) made(t *testing.T, ask wire.NewCheckpoint) wire.Checkpoint {
	t.Helper()
	c, err := f.Service.Create(t.Context(), enginetest.Tenant, ask)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// left is how many states checkpoints keep.
func (f *fixture) left(t *testing.T) int {
	t.Helper()
	n, err := f.Store.Count(t.Context(), enginetest.Tenant, "checkpoint.states", store.Range{}, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// remade is a spec under which counters count otherwise.
func remade() string {
	return strings.Replace(
		enginetest.CounterSpec, `{"target":"n","by":"$.data.by"}`, `{"target":"m","by":"$.data.by"}`, 1,
	)
}

// TestCheckpointsKeepStates makes checkpoints of one aggregate, of a type and of all, goes on, and has them restored:
// states are what they were before.
func TestCheckpointsKeepStates(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{SnapshotEvery: 2})
	f.counted(t, 600)
	f.Post(t, "other/main/was_seen", enginetest.Body(`{}`))
	key := "counter:00000000-0000-4000-a000-000000000007"
	for range 3 {
		f.Post(t, fmt.Sprintf(counters, 7), enginetest.Body(`{"by":1}`))
	}
	exported := func(typ string) string {
		x, err := f.States(t.Context(), enginetest.Tenant, typ)
		if err != nil {
			t.Fatal(err)
		}
		return lines(t.Context(), t, x)
	}
	one := ""
	for line := range strings.Lines(exported("")) {
		if strings.HasPrefix(line, `{"key":"`+key) {
			one = line
		}
	}
	var all []wire.Checkpoint
	for _, tc := range []struct {
		ask   wire.NewCheckpoint
		scope string
		want  string
	}{
		{wire.NewCheckpoint{Name: new("one"), Key: &key}, "aggregate", one},
		{wire.NewCheckpoint{AggregateType: new("counter")}, "type", exported("counter")},
		{wire.NewCheckpoint{}, "environment", exported("")},
	} {
		sum := sha256.Sum256([]byte(tc.want))
		made := f.made(t, tc.ask)
		if made.Scope != tc.scope || made.StateHash != hex.EncodeToString(sum[:]) ||
			made.Aggregates != uint64(strings.Count(tc.want, "\n")) {
			t.Errorf("made %+v of %s", made, tc.want)
		}
		all = append([]wire.Checkpoint{made}, all...)
	}
	if f.left(t) != 1+600+601 {
		t.Errorf("%d states are kept", f.left(t))
	}

	// They are there for others to find, also for another process, and are a base for replays.
	before := exported("")
	f.Open(t, engine.Options{SnapshotEvery: 2})
	f.DeploySource(t, enginetest.CounterSpec)
	f.Service = f.checkpoints()
	if got, err := f.List(t.Context(), enginetest.Tenant, 0, 10); err != nil || cmp.Diff(all, got) != "" {
		t.Errorf("listed are %+v, %v", got, err)
	}
	for _, c := range all {
		if n, got, err := f.Restore(t.Context(), enginetest.Tenant, c.ID); err != nil || n != c.Aggregates ||
			got.ID != c.ID {
			t.Errorf("restoring %+v gives %d, %v", c, n, err)
		}
		if got := exported(""); got != before {
			t.Errorf("states have changed by it: %s", got)
		}
	}
	folded := f.Stats().Folded
	if f.State(t, "counter/"+strings.TrimPrefix(key, "counter:"), engine.LoadOptions{}); f.Stats().Folded != folded {
		t.Errorf("%d events were folded for what was restored", f.Stats().Folded-folded)
	}
	f.Post(t, fmt.Sprintf(counters, 7), enginetest.Body(`{"by":1}`))
	if _, _, err := f.Restore(t.Context(), enginetest.Tenant, all[0].ID); err != nil {
		t.Errorf("after more events: %v", err)
	}

	// A checkpoint that is deleted takes what it keeps with it, and nothing else.
	for _, want := range []j17.Code{"", j17.CodeNotFound} {
		if _, err := f.Delete(t.Context(), enginetest.Tenant, all[0].ID); j17.CodeOf(err) != want {
			t.Errorf("deleting gives %v, want %q", err, want)
		}
	}
	for _, q := range f.Queues() {
		if err := q.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if f.left(t) != 1+600 {
		t.Errorf("%d states are left", f.left(t))
	}
	if _, _, err := f.Restore(t.Context(), enginetest.Tenant, all[1].ID); err != nil {
		t.Error(err)
	}
}

// TestWhatIsNoCheckpoint asks for checkpoints that cannot be.
func TestWhatIsNoCheckpoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 1)
	key := "counter:00000000-0000-4000-a000-000000000000"
	for name, tc := range map[string]struct {
		ask  wire.NewCheckpoint
		want j17.Code
	}{
		"no aggregate":        {wire.NewCheckpoint{Key: new("counter:00000000-0000-4000-a000-000000000001")}, j17.CodeAggregateNotFound},
		"a silent singleton":  {wire.NewCheckpoint{Key: new("counter:main")}, j17.CodeAggregateNotFound},
		"no type of it":       {wire.NewCheckpoint{Key: new("ghost:main")}, j17.CodeUnknownType},
		"no type":             {wire.NewCheckpoint{AggregateType: new("ghost")}, j17.CodeUnknownType},
		"an empty type":       {wire.NewCheckpoint{AggregateType: new("")}, j17.CodeInvalidField},
		"no key":              {wire.NewCheckpoint{Key: new("counter")}, j17.CodeInvalidField},
		"two scopes":          {wire.NewCheckpoint{Key: &key, AggregateType: new("counter")}, j17.CodeInvalidField},
		"an empty name":       {wire.NewCheckpoint{Name: new("")}, j17.CodeInvalidField},
		"a name that is long": {wire.NewCheckpoint{Name: new(strings.Repeat("n", 201))}, j17.CodeInvalidField},
	} {
		if _, err := f.Service.Create(t.Context(), enginetest.Tenant, tc.ask); j17.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	for _, id := range []string{"", "chk_zzzzzzzzzzzzzzz", "a\x00b", strings.Repeat("x", 2000)} {
		if _, err := f.Get(t.Context(), enginetest.Tenant, id); j17.CodeOf(err) != j17.CodeNotFound {
			t.Errorf("the id %.20q: %v", id, err)
		}
	}
	if all, err := f.List(t.Context(), enginetest.Tenant, 0, 10); err != nil || len(all) != 0 || f.left(t) != 0 {
		t.Errorf("there are %+v, %v, and %d states", all, err, f.left(t))
	}
}

// TestOutdatedCheckpoints restores checkpoints after handlers have changed, and after events were erased.
func TestOutdatedCheckpoints(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 3)
	f.Post(t, "other/main/was_seen", enginetest.Body(`{}`))
	outdated := func(c wire.Checkpoint, want j17.Code) {
		t.Helper()
		if _, _, err := f.Restore(t.Context(), enginetest.Tenant, c.ID); j17.CodeOf(err) != want {
			t.Errorf("restoring %s %s%s gives %v, want %q", c.Scope, c.Key, c.AggregateType, err, want)
		}
	}

	// Only those with the type whose handlers have changed.
	all, other := f.made(t, wire.NewCheckpoint{}), f.made(t, wire.NewCheckpoint{AggregateType: new("other")})
	f.DeploySource(t, remade())
	outdated(all, j17.CodeCheckpointOutdated)
	outdated(other, "")
	f.DeploySource(t, enginetest.CounterSpec)
	outdated(all, "")

	// Only those with a stream that was erased, before and after its states are removed.
	key := j17.Key{Type: "counter", ID: "00000000-0000-4000-a000-000000000001"}
	one, two := f.made(t, wire.NewCheckpoint{Key: new(key.String())}), f.made(t, wire.NewCheckpoint{Key: new("counter:00000000-0000-4000-a000-000000000002")})
	if _, err := f.Store.Rewrite(t.Context(), enginetest.Tenant, store.Rewrite{Streams: []store.RewrittenStream{{
		Key: key, Events: []store.Rewritten{
			{Version: 1, Type: "_was_tombstoned", Data: []byte("null"), Metadata: []byte("{}")},
		},
	}}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		outdated(all, j17.CodeCheckpointOutdated)
		outdated(one, j17.CodeCheckpointOutdated)
		outdated(two, "")
		outdated(other, "")
		if err := f.Erase(t.Context(), enginetest.Tenant, part.Erased{Keys: []j17.Key{key}}); err != nil {
			t.Fatal(err)
		}
		if held, err := store.HeldBy(
			t.Context(), f.Store, enginetest.Tenant, part.Declared(f.Part().Spaces), key,
		); err != nil || len(held) > 0 {
			t.Errorf("of what was erased there is %v, %v", held, err)
		}
	}
	outdated(f.made(t, wire.NewCheckpoint{}), "")
}

// TestDamagedCheckpoints changes each byte of what a checkpoint keeps, and what its row says: it is said, and nothing
// is restored.
func TestDamagedCheckpoints(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 1)
	c := f.made(t, wire.NewCheckpoint{})
	key := "counter:00000000-0000-4000-a000-000000000000/" + c.ID
	item, err := f.Store.Get(t.Context(), enginetest.Tenant, "checkpoint.states", key)
	if err != nil {
		t.Fatal(err)
	}
	put := func(space store.Space, key string, value []byte) {
		t.Helper()
		if err := f.Store.Write(t.Context(), enginetest.Tenant, []store.Side{
			{Op: store.Put, Space: space, Key: key, Value: value},
		}); err != nil {
			t.Fatal(err)
		}
	}
	damaged := func(what string, want string) {
		t.Helper()
		_, _, err := f.Restore(t.Context(), enginetest.Tenant, c.ID)
		if cause, ok := errors.AsType[*store.CorruptionError](err); j17.CodeOf(err) != j17.CodeCorruption || !ok ||
			!strings.Contains(cause.Where, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range item.Value {
		changed := append([]byte(nil), item.Value...)
		changed[i] ^= 0x40
		put("checkpoint.states", key, changed)
		damaged(fmt.Sprintf("byte %d", i), key)
	}
	for _, n := range []int{0, 1, 50, len(item.Value) - 1} {
		put("checkpoint.states", key, item.Value[:n])
		damaged(fmt.Sprintf("%d bytes", n), key)
	}
	if err := f.Store.Write(t.Context(), enginetest.Tenant, []store.Side{
		{Op: store.Delete, Space: "checkpoint.states", Key: key},
	}); err != nil {
		t.Fatal(err)
	}
	damaged("nothing", c.ID)
	put("checkpoint.states", key, item.Value)
	rows, err := f.Store.Scan(t.Context(), enginetest.Tenant, "checkpoints", store.Range{}, 2)
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	put(
		"checkpoints", rows[0].Key,
		[]byte(strings.Replace(string(rows[0].Value), c.StateHash, strings.Repeat("0", 64), 1)),
	)
	damaged("another hash", c.ID)
	put("checkpoints", rows[0].Key, []byte("{"))
	damaged("no row", rows[0].Key)
}

// TestUnfinishedCheckpoints ends the making of a checkpoint in the middle, by its context and by the end of its
// process: nothing is left.
func TestUnfinishedCheckpoints(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"cancelled", "killed"} {
		f := newFixture(t, enginetest.CounterSpec, engine.Options{})
		f.counted(t, 700)
		ends := &endingStore{Storage: f.Store, after: 1}
		ctx, cancel := endingContext(t)
		ends.end = cancel
		if how == "killed" {
			ends.end = func() {}
			ends.broken = errors.New("the process has ended")
		}
		f.Service = f.checkpointsOn(ends)
		if _, err := f.Service.Create(ctx, enginetest.Tenant, wire.NewCheckpoint{}); err == nil {
			t.Fatalf("%s: it was made", how)
		}
		if f.left(t) == 0 {
			t.Fatalf("%s: it had not begun", how)
		}

		// Another process, or the same one, removes what there is.
		f.Service = f.checkpoints()
		f.Clock.Advance(2 * time.Minute)
		for _, q := range f.Queues() {
			if err := q.Settle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		jobs, err := f.Store.Count(t.Context(), enginetest.Tenant, "checkpoint.jobs", store.Range{}, 10)
		if all, failed := f.List(
			t.Context(), enginetest.Tenant, 0, 10,
		); failed != nil || err != nil || len(all) != 0 || f.left(t) != 0 || jobs != 0 {
			t.Errorf("%s: left are %+v, %d states and %d removals, %v %v", how, all, f.left(t), jobs, failed, err)
		}
	}
}

// TestAnErasureWhileACheckpointIsMade erases a stream after its state was loaded and before it is written: what is kept
// is what there is then.
func TestAnErasureWhileACheckpointIsMade(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 3)
	key := j17.Key{Type: "counter", ID: "00000000-0000-4000-a000-000000000001"}
	erasing := &endingStore{Storage: f.Store, atHeads: func() {
		if _, err := f.Store.Rewrite(t.Context(), enginetest.Tenant, store.Rewrite{Streams: []store.RewrittenStream{{
			Key: key, Events: []store.Rewritten{
				{Version: 1, Type: "_was_tombstoned", Data: []byte("null"), Metadata: []byte("{}")},
			},
		}}}); err != nil {
			t.Error(err)
		}
	}}
	f.Service = f.checkpointsOn(erasing)
	c := f.made(t, wire.NewCheckpoint{})
	item, err := f.Store.Get(t.Context(), enginetest.Tenant, "checkpoint.states", key.String()+"/"+c.ID)
	if err != nil || strings.Contains(string(item.Value), `"n":1`) || erasing.atHeads != nil {
		t.Errorf("the state of what was erased is kept: %q, %v", item.Value, err)
	}
	if _, _, err := f.Restore(t.Context(), enginetest.Tenant, c.ID); err != nil {
		t.Error(err)
	}
}

// TestAnErasureAndADeploymentWhileACheckpointIsMade erases a stream after its state was loaded, and deploys a spec with
// a type more, or one less: there is no checkpoint of one spec whose states are those of the other, and nothing is left
// of it.
func TestAnErasureAndADeploymentWhileACheckpointIsMade(t *testing.T) {
	t.Parallel()
	one := enginetest.CounterSpec
	two := strings.Replace(one, `"aggregate_types": {`, `"aggregate_types": {"abacus": {"events": {"was_made": {"schema": {"type":"object"}, "handler": []}}}, `, 1)
	for _, specs := range [][2]string{{one, two}, {two, one}} {
		f := newFixture(t, specs[0], engine.Options{})
		f.counted(t, 3)
		if strings.Contains(specs[0], "abacus") {
			f.Post(t, "abacus/00000000-0000-4000-a000-000000000009/was_made", enginetest.Body(`{}`))
		}
		key := j17.Key{Type: "counter", ID: "00000000-0000-4000-a000-000000000001"}
		erasing := &endingStore{Storage: f.Store, atHeads: func() {
			f.DeploySource(t, specs[1])
			if _, err := f.Store.Rewrite(t.Context(), enginetest.Tenant,
				store.Rewrite{Streams: []store.RewrittenStream{{
					Key: key, Events: []store.Rewritten{
						{Version: 1, Type: "_was_tombstoned", Data: []byte("null"), Metadata: []byte("{}")},
					},
				}}}); err != nil {
				t.Error(err)
			}
		}}
		f.Service = f.checkpointsOn(erasing)
		f.running(t)
		if _, err := f.Service.Create(
			t.Context(), enginetest.Tenant, wire.NewCheckpoint{},
		); j17.CodeOf(err) != j17.CodeBusy {
			t.Errorf("it is made: %v", err)
		}
		c := f.made(t, wire.NewCheckpoint{})
		if _, _, err := f.Restore(t.Context(), enginetest.Tenant, c.ID); err != nil {
			t.Errorf("the next one: %v", err)
		}
	}
}

// TestACheckpointThatIsCompletedWhileItIsRemoved lets a removal begin that was planned for the case that a checkpoint
// does not come to its end, and the checkpoint come to its end then: it keeps its states.
func TestACheckpointThatIsCompletedWhileItIsRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 3)
	c := f.made(t, wire.NewCheckpoint{})
	job := store.Side{
		Op: store.Put, Space: "checkpoint.jobs", Key: c.ID, Value: []byte(`{"types":["counter"]}`), Due: f.Clock.Now(),
	}
	if err := f.Store.Write(t.Context(), enginetest.Tenant, []store.Side{job}); err != nil {
		t.Fatal(err)
	}
	completed := &endingStore{Storage: f.Store, atRemoval: func() {
		if err := f.Store.Write(t.Context(), enginetest.Tenant, []store.Side{
			{Op: store.Delete, Space: job.Space, Key: job.Key},
		}); err != nil {
			t.Error(err)
		}
	}}
	f.Service = f.checkpointsOn(completed)
	for _, q := range f.Queues() {
		if err := q.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if completed.atRemoval != nil || f.left(t) != 3 {
		t.Errorf("%d states are left; the removal began: %v", f.left(t), completed.atRemoval == nil)
	}
	if _, _, err := f.Restore(t.Context(), enginetest.Tenant, c.ID); err != nil {
		t.Error(err)
	}
}

// TestTheLastCheckpoint lets another checkpoint be made, the last that there may be, while one is being made: that one
// is refused, and leaves nothing.
func TestTheLastCheckpoint(t *testing.T) {
	t.Parallel()
	f := newFixture(t, enginetest.CounterSpec, engine.Options{})
	f.counted(t, 3)
	add := func(from, to int) {
		var sides []store.Side
		for n := from; n <= to; n++ {
			sides = append(sides, store.Side{
				Op: store.Put, Space: "checkpoints", Key: fmt.Sprintf("%016x/chk_%d", n, n), Value: []byte(`{}`),
			})
		}
		if err := f.Store.Write(t.Context(), enginetest.Tenant, sides); err != nil {
			t.Error(err)
		}
	}
	add(1, 999)
	f.Service = f.checkpointsOn(&endingStore{Storage: f.Store, atHeads: func() { add(1000, 1000) }})
	if c, err := f.Service.Create(
		t.Context(), enginetest.Tenant, wire.NewCheckpoint{},
	); j17.CodeOf(err) != j17.CodeConflict {
		t.Errorf("made is %+v, %v", c, err)
	}
	for _, q := range f.Queues() {
		if err := q.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if f.left(t) != 0 {
		t.Errorf("%d states are left of it", f.left(t))
	}
}
