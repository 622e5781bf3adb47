package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"j17"
	"j17/internal/storage/store"
)

// testHistories applies random operations to a store and to its model, and compares them.
func testHistories(s *suite) {
	t := s.t
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{t: t, f: s.start(t), model: model{}}
		defer func() { h.f.stop(rt) }()
		rt.Repeat(map[string]func(*rapid.T){
			"append":    h.append,
			"append ":   h.append,
			"append  ":  h.append,
			"write":     h.write,
			"claim":     h.claim,
			"rewrite":   h.rewrite,
			"retag":     h.retag,
			"copy":      h.copyTenant,
			"drop":      h.drop,
			"clock":     h.moveClock,
			"reopen":    func(rt *rapid.T) { h.f.reopen(h.t, rt) },
			"read":      h.read,
			"read feed": h.readFeed,
			"":          h.check,
		})
	})
}

type history struct {
	t     *testing.T
	f     *fixture
	model model
	steps int
}

func tenantNames() []j17.Tenant { return []j17.Tenant{tenant, other, "shop"} }

func tenants() *rapid.Generator[j17.Tenant] {
	return rapid.SampledFrom(tenantNames())
}

func keys() *rapid.Generator[j17.Key] {
	return rapid.SampledFrom([]j17.Key{
		order("a"), order("b"), order("ab"), {Type: "user", ID: "a"}, {Type: "orders", ID: "b"},
	})
}

func spaces() *rapid.Generator[store.Space] { return rapid.SampledFrom([]store.Space{space, "work"}) }

func itemKeys() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"a", "a/1", "a/2", "b", "\n"})
}

func contents() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{
		`1`, `null`, `{}`, `{"a":"ü\n"}`, `[1.50,{"b":[]}]`, `"` + strings.Repeat("long ", 100) + `"`,
	})
}

// soon returns a moment before or after now, or none.
func (h *history) soon(rt *rapid.T, label string) time.Time {
	d := rapid.IntRange(-3, 20).Draw(rt, label)
	if d < -1 {
		return time.Time{}
	}
	return h.f.clock.Now().Add(time.Duration(d) * time.Minute)
}

func (h *history) newEvent(rt *rapid.T) store.NewEvent {
	e := store.NewEvent{
		Key: keys().Draw(rt, "key"), Type: rapid.SampledFrom([]string{"was_placed", "was_paid"}).Draw(rt, "type"),
		Data:     []byte(contents().Draw(rt, "data")),
		Metadata: []byte(rapid.SampledFrom([]string{`{}`, `{"actor":{"type":"user","id":"u"}}`}).Draw(rt, "metadata")),
	}
	e.Tags = j17.MetadataTags(e.Metadata)
	for _, tag := range []string{"sku:A", "sku:B", "ü"} {
		if rapid.Bool().Draw(rt, "tagged") {
			e.Tags = append(e.Tags, tag)
		}
	}
	if rapid.IntRange(0, 9).Draw(rt, "own timestamp") == 0 {
		e.Timestamp = new(int64(rapid.IntRange(-50, 2000).Draw(rt, "timestamp")))
	}
	return e
}

func (h *history) side(rt *rapid.T, name j17.Tenant) store.Side {
	w := store.Side{
		Op:    rapid.SampledFrom([]store.SideOp{store.Put, store.Put, store.Put, store.Delete}).Draw(rt, "op"),
		Space: spaces().Draw(rt, "space"), Key: itemKeys().Draw(rt, "item"),
		Cond: rapid.SampledFrom([]store.Cond{
			store.Always, store.Always, store.IfAbsent, store.IfRev, store.IfValue,
		}).Draw(rt, "cond"),
	}
	if w.Op == store.Put {
		w.Value, w.Expires, w.Due = []byte(contents().Draw(rt, "value")), h.soon(rt, "expires"), h.soon(rt, "due")
	}
	item, _ := h.model.tenant(name).live(itemKey{w.Space, w.Key}, h.f.clock.Now())
	switch w.Cond {
	case store.IfRev:
		w.Rev = item.Rev + rapid.SampledFrom([]uint64{0, 0, 0, 1e6}).Draw(rt, "wrong rev")
	case store.IfValue:
		w.Was = h.compared(rt, item.Value)
	case store.Always, store.IfAbsent:
	}
	return w
}

func (h *history) fences(rt *rapid.T, name j17.Tenant) []store.Fence {
	if rapid.IntRange(0, 3).Draw(rt, "fenced") > 0 {
		return nil
	}
	f := store.Fence{Space: spaces().Draw(rt, "fence space"), Key: itemKeys().Draw(rt, "fence")}
	item, _ := h.model.tenant(name).live(itemKey{f.Space, f.Key}, h.f.clock.Now())
	if f.ByValue = rapid.Bool().Draw(rt, "by value"); f.ByValue {
		f.Value = h.compared(rt, item.Value)
	} else {
		f.Rev = item.Rev + rapid.SampledFrom([]uint64{0, 0, 1e6}).Draw(rt, "wrong fence")
	}
	return []store.Fence{f}
}

// compared draws what the value of an item is compared with, usually the value itself.
func (h *history) compared(rt *rapid.T, value []byte) string {
	if rapid.IntRange(0, 3).Draw(rt, "wrong value") > 0 {
		return string(value)
	}
	return contents().Draw(rt, "compared")
}

// unless draws conditions that events are absent, some of them after an existing event.
func (h *history) unless(rt *rapid.T, name j17.Tenant) (list []store.Absent) {
	for range rapid.IntRange(1, 2).Draw(rt, "conditions") {
		a := store.Absent{Tags: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
			"sku:A", "sku:B", "ü", "actor:user:u", "none",
		}), 1, 3, rapid.ID).Draw(rt, "absent tags")}
		a.Types = rapid.SliceOfN(rapid.SampledFrom([]store.TypePattern{
			{Aggregate: "order"},
			{Aggregate: "order", Event: "was_placed"},
			{Aggregate: "user", Event: "was_paid"},
			{Aggregate: "nothing"},
		}), 0, 2).Draw(rt, "absent types")
		if feed := h.model.tenant(name).feed; len(feed) > 0 && rapid.IntRange(0, 3).Draw(rt, "after") > 0 {
			back := min(rapid.IntRange(0, 5).Draw(rt, "back"), len(feed)-1)
			a.After = feed[len(feed)-1-back].ID
		}
		list = append(list, a)
	}
	return list
}

func (h *history) unit(rt *rapid.T, name j17.Tenant) store.Append {
	u := store.Append{
		Timestamp: int64(rapid.IntRange(0, 1000).Draw(rt, "unit timestamp")), Decided: rapid.Bool().Draw(rt, "decided"),
	}
	for range rapid.IntRange(0, 4).Draw(rt, "events") {
		u.Events = append(u.Events, h.newEvent(rt))
	}
	for range rapid.IntRange(0, 2).Draw(rt, "preconditions") {
		key := keys().Draw(rt, "key")
		n := uint64(len(h.model.tenant(name).streams[key]))
		u.Pre = append(u.Pre, store.Pre{
			Key: key, Length: n + rapid.SampledFrom([]uint64{0, 0, 0, 1}).Draw(rt, "wrong length"),
		})
	}
	for range rapid.IntRange(0, 2).Draw(rt, "sides") {
		u.Side = append(u.Side, h.side(rt, name))
	}
	u.Fences = h.fences(rt, name)
	if rapid.IntRange(0, 2).Draw(rt, "unless") == 0 {
		u.Unless = h.unless(rt, name)
	}
	if rapid.Bool().Draw(rt, "has command") {
		u.Command = &store.Command{
			ID:      store.CommandID{rapid.Byte().Filter(func(b byte) bool { return b < 8 }).Draw(rt, "command")},
			Expires: h.soon(rt, "command expires"),
		}
		if rapid.Bool().Draw(rt, "has memo") {
			u.Command.Memo = []byte("memo")
		}
	}
	return u
}

func (h *history) append(rt *rapid.T) {
	name := tenants().Draw(rt, "tenant")
	var units []store.Append
	for i := range rapid.IntRange(1, 3).Draw(rt, "units") {
		u := h.unit(rt, name)
		if i > 0 && rapid.Bool().Draw(rt, "depends") {
			u.After = []int{rapid.IntRange(0, i-1).Draw(rt, "after")}
		}
		units = append(units, u)
	}
	results, err := h.f.Append(rt.Context(), name, units)
	if err != nil {
		rt.Fatalf("append: %v", err)
	}
	for i := range units {
		if slices.ContainsFunc(units[i].After, func(n int) bool { return results[n].Outcome != store.Committed }) {
			if err := same("a unit behind one that was not written", store.Result{Outcome: store.Conflict}, results[i]); err != nil {
				rt.Fatalf("unit %d: %v", i, err)
			}
			continue
		}
		if err := h.model.tenant(name).apply(&units[i], &results[i], h.f.clock.Now()); err != nil {
			rt.Fatalf("unit %d: %v", i, err)
		}
	}
	h.learnRevs(rt)
}

func (h *history) write(rt *rapid.T) {
	name := tenants().Draw(rt, "tenant")
	var u store.Append
	for range rapid.IntRange(1, 3).Draw(rt, "sides") {
		u.Side = append(u.Side, h.side(rt, name))
	}
	u.Fences = h.fences(rt, name)
	err := h.f.Write(rt.Context(), name, u.Side, u.Fences...)
	result := store.Result{Outcome: store.Committed}
	tn := h.model.tenant(name)
	if len(tn.feed) > 0 {
		result.Timestamp = max(0, tn.lastTime)
	}
	var conflict *store.SideConflict
	switch {
	case errors.As(err, &conflict):
		// Write reports only the first conflict.
		probe := result
		if tn.apply(&u, &probe, h.f.clock.Now()) == nil {
			rt.Fatalf("write: conflict %v where there is none", conflict)
		}
		return
	case err != nil:
		rt.Fatalf("write: %v", err)
	}
	if err := tn.apply(&u, &result, h.f.clock.Now()); err != nil {
		rt.Fatalf("write: %v", err)
	}
	h.learnRevs(rt)
}

// learnRevs reads the Revs of the items that were written. They must be new ones.
func (h *history) learnRevs(rt *rapid.T) {
	for name, tn := range h.model {
		for k, item := range tn.items {
			if item.Rev != 0 || gone(item.Expires, h.f.clock.Now()) {
				continue
			}
			got := get(rt, h.f, name, k.space, k.key)
			if got.Rev == 0 || tn.revs[got.Rev] {
				rt.Fatalf("rev %d of %v was used before", got.Rev, k)
			}
			tn.revs[got.Rev] = true
			item.Rev = got.Rev
			tn.items[k] = item
			if diff := cmp.Diff(item, got, cmpopts.EquateEmpty()); diff != "" {
				rt.Fatalf("item %v (-want +got):\n%s", k, diff)
			}
		}
	}
}

func (h *history) claim(rt *rapid.T) {
	name, sp := tenants().Draw(rt, "tenant"), spaces().Draw(rt, "space")
	limit, lease := rapid.IntRange(1, 3).Draw(rt, "limit"),
		time.Duration(rapid.IntRange(0, 5).Draw(rt, "lease"))*time.Minute
	now := h.f.clock.Now()
	tn := h.model.tenant(name)
	want := tn.due(sp, now)
	want = want[:min(limit, len(want))]
	items, err := h.f.ClaimDue(rt.Context(), name, store.Claim{Space: sp, Limit: limit, Lease: lease})
	if err != nil {
		rt.Fatalf("claim: %v", err)
	}
	if !slices.Equal(keysOf(items), want) {
		rt.Fatalf("claimed %q, want %q", keysOf(items), want)
	}
	for _, got := range items {
		k := itemKey{sp, got.Key}
		item := tn.items[k]
		item.Due, item.Rev = now.Add(lease), 0
		tn.items[k] = item
	}
	h.learnRevs(rt)
}

func (h *history) rewrite(rt *rapid.T) {
	name, key := tenants().Draw(rt, "tenant"), keys().Draw(rt, "key")
	n := len(h.model.tenant(name).streams[key])
	if n == 0 {
		rt.Skip("no events")
	}
	r := store.Rewritten{
		Version: uint64(rapid.IntRange(1, n).Draw(rt, "version")), Type: "was_erased",
		Data: []byte(contents().Draw(rt, "data")), Metadata: []byte(`{}`),
	}
	if err := Erase(rt.Context(), h.f, name, key, []store.Rewritten{r}); err != nil {
		rt.Fatalf("rewrite: %v", err)
	}
	h.model.tenant(name).rewrite(key, r)
}

// retag gives some events of a stream other tags.
func (h *history) retag(rt *rapid.T) {
	name, key := tenants().Draw(rt, "tenant"), keys().Draw(rt, "key")
	n := len(h.model.tenant(name).streams[key])
	if n == 0 {
		rt.Skip("no events")
	}
	var list []store.Retagged
	for _, version := range rapid.SliceOfNDistinct(rapid.IntRange(1, n), 1, 3, rapid.ID).Draw(rt, "versions") {
		tags := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
			"sku:A", "sku:B", "ü", "actor:user:nobody",
		}), 0, 3, rapid.ID).Draw(rt, "tags")
		list = append(list, store.Retagged{Key: key, Version: uint64(version), Tags: tags})
	}
	fences := h.fences(rt, name)
	held := true
	for _, f := range fences {
		item, ok := h.model.tenant(name).live(itemKey{f.Space, f.Key}, h.f.clock.Now())
		held = held && stands(&f, &item, ok)
	}
	err := h.f.Retag(rt.Context(), name, list, fences...)
	if _, conflict := errors.AsType[*store.SideConflict](err); conflict && !held {
		return
	}
	if err != nil {
		rt.Fatalf("retag: %v", err)
	}
	if held {
		h.model.tenant(name).retag(list)
		return
	}
	for _, e := range list {
		if h.model.tenant(name).changedBy(e) {
			rt.Fatalf("events were tagged although a fence does not hold")
		}
	}
}

// copyTenant copies one tenant to another name.
func (h *history) copyTenant(rt *rapid.T) {
	from, to := tenants().Draw(rt, "from"), tenants().Draw(rt, "to")
	source, target := h.model.tenant(from), h.model.tenant(to)
	if !source.written || (target.written && len(target.feed) == 0) {
		return // a load keeps the items of its tenant: see testLoadItems
	}
	err := Copy(rt.Context(), h.f, from, h.f, to)
	if len(target.feed) > 0 {
		if !errors.Is(err, store.ErrNotEmpty) {
			rt.Fatalf("copy to a tenant with events: %v", err)
		}
		return
	}
	if err != nil {
		rt.Fatalf("copy: %v", err)
	}
	h.model[to] = source.copied(h.f.clock.Now())
}

func (h *history) drop(rt *rapid.T) {
	name := tenants().Draw(rt, "tenant")
	if err := h.f.DropTenant(rt.Context(), name); err != nil {
		rt.Fatalf("drop: %v", err)
	}
	delete(h.model, name)
}

func (h *history) moveClock(rt *rapid.T) {
	minutes := rapid.IntRange(-5, 15).Draw(rt, "minutes")
	// Expiry is final: if the clock ran far backward, the model would show removed items again.
	if minutes > 0 {
		h.f.clock.Advance(time.Duration(minutes) * time.Minute)
	} else {
		h.f.clock.Advance(time.Duration(-minutes) * time.Millisecond)
	}
}

func (h *history) read(rt *rapid.T) {
	name, key := tenants().Draw(rt, "tenant"), keys().Draw(rt, "key")
	list := h.model.tenant(name).streams[key]
	from, to := rapid.IntRange(1, 8).Draw(rt, "from"), rapid.IntRange(0, 8).Draw(rt, "to")
	last := len(list)
	if to != 0 {
		last = min(to, last)
	}
	var want []record
	if from <= last {
		want = list[from-1 : last]
	}
	if diff := cmp.Diff(
		want, readStream(rt, h.f, name, key, uint64(from), uint64(to)), cmpopts.EquateEmpty(),
	); diff != "" {
		rt.Fatalf("%s from %d to %d (-want +got):\n%s", key, from, to, diff)
	}
	var after j17.StreamID
	if len(list) > 0 {
		after = rapid.SampledFrom(list).Draw(rt, "after").ID
		after.Ms += int64(rapid.IntRange(-1, 1).Draw(rt, "shift"))
	}
	version := uint64(1 + len(list))
	for _, e := range slices.Backward(list) {
		if e.ID.Compare(after) > 0 {
			version = e.Version
		}
	}
	if got, err := h.f.VersionAfter(rt.Context(), name, key, after); err != nil || got != version {
		rt.Fatalf("version of %s after %s: %d, %v, want %d", key, after, got, err, version)
	}
}

func (h *history) readFeed(rt *rapid.T) {
	name := tenants().Draw(rt, "tenant")
	feed := h.model.tenant(name).feed
	start, limit := rapid.IntRange(0, len(feed)).Draw(rt, "start"), rapid.IntRange(0, 5).Draw(rt, "limit")
	var after j17.StreamID
	if start > 0 {
		after = feed[start-1].ID
	}
	want := feed[start:min(start+limit, len(feed))]
	if diff := cmp.Diff(want, readFeed(rt, h.f, name, after, limit), cmpopts.EquateEmpty()); diff != "" {
		rt.Fatalf("feed after %s (-want +got):\n%s", after, diff)
	}
}

// check compares the list of tenants, and the content of one of the tenants in turn.
func (h *history) check(rt *rapid.T) {
	h.steps++
	name := tenantNames()[h.steps%len(tenantNames())]
	h.checkTenant(rt, name, h.model.tenant(name), h.f.clock.Now())
	var names []j17.Tenant
	for name, tn := range h.model {
		if tn.written {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if got, err := h.f.Tenants(rt.Context()); err != nil || !slices.Equal(got, names) {
		rt.Fatalf("tenants %v, %v, want %v", got, err, names)
	}
}

func (h *history) checkTenant(rt *rapid.T, name j17.Tenant, tn *modelTenant, now time.Time) {
	// The streams.
	all := []j17.Key{
		order("a"), order("b"), order("ab"), {Type: "user", ID: "a"}, {Type: "orders", ID: "b"}, order("c"),
	}
	var want []store.Head
	for _, key := range all {
		want = append(want, tn.head(key))
	}
	got, err := h.f.Heads(rt.Context(), name, all)
	if err != nil {
		rt.Fatalf("heads: %v", err)
	}
	if !slices.Equal(want, got) {
		rt.Fatalf("heads of %s (-want +got):\n%s", name, cmp.Diff(want, got))
	}
	for _, typ := range []string{"order", "orders"} {
		ids, err := h.f.Streams(rt.Context(), name, typ, "", everything)
		if err != nil || !slices.Equal(ids, tn.ids(typ)) {
			rt.Fatalf("streams %q, %v, want %q", ids, err, tn.ids(typ))
		}
	}

	// The side items.
	for _, sp := range []store.Space{space, "work"} {
		for _, prefix := range []string{"", "a/"} {
			items, err := h.f.Scan(rt.Context(), name, sp, store.Prefix(prefix).After("a/1"), everything)
			if err != nil {
				rt.Fatalf("scan: %v", err)
			}
			want := tn.scan(sp, prefix, "a/1", now)
			if !slices.EqualFunc(want, items, sameItem) {
				rt.Fatalf("items of %s (-want +got):\n%s", name, cmp.Diff(want, items))
			}
		}
	}

	// The index of tags.
	tags := [][]string{{"sku:A"}, {"ü", "actor:user:u"}, {"sku:B", "sku:A", "ü"}, {"none", "sku:A"}}[h.steps%4]
	var after j17.StreamID
	if len(tn.feed) > 0 && h.steps%2 == 0 {
		after = tn.feed[h.steps%len(tn.feed)].ID
	}
	if diff := cmp.Diff(tn.tagged(tags, after), readTagged(rt, h.f, name, after, everything, tags...)); diff != "" {
		rt.Fatalf("events of %s with the tags %q (-want +got):\n%s", name, tags, diff)
	}

	// The commands.
	for id := range byte(8) {
		r, err := h.f.Command(rt.Context(), name, store.CommandID{id})
		if err != nil {
			rt.Fatalf("command: %v", err)
		}
		want := tn.command(store.CommandID{id}, now)
		if want == nil && r == nil {
			continue
		}
		if diff := cmp.Diff(want, r, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("%s (-want +got):\n%s", fmt.Sprint("command ", id), diff)
		}
	}
}

func sameItem(a, b store.Item) bool {
	return a.Key == b.Key && a.Rev == b.Rev && bytes.Equal(a.Value, b.Value) && a.Due.Equal(b.Due) &&
		a.Expires.Equal(b.Expires)
}
