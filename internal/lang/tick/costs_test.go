//go:build !race

package tick_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/tick"
)

// Folds of ordinary aggregates are linear: what looks for an element in an array of twenty thousand takes no longer
// than in one of a few. The work is counted, so the test does not depend on the machine.
func TestFoldsAreLinear(t *testing.T) {
	const n = 20_000
	for _, src := range []string{
		`{"upsert":{"target":"xs","match":{"id":"$.data.id"},"value":{"id":"$.data.id","n":1}}}`,
		`{"append_unique":{"target":"xs","value":"$.data.id"}}`,
		`{"append_unique":{"target":"xs","value":"$.data","uniqueField":"id"}}`,
		`{"append_unique":{"target":"xs","value":{"id":"$.data.id","n":1}}}`,
		`{"if":{"not":{"includes":{"array":"xs","value":"$.data.id"}}},"then":{"append":{"target":"xs","value":"$.data.id"}}}`,
		`[{"update_where":{"target":"xs","match":{"id":"$.data.id"},"merge":{"n":2}}},{"append":{"target":"xs","value":{"id":"$.data.id","n":1}}}]`,
		`[{"if":{"some":{"in":["x"],"match":{"in":["$.data.id","xs"]}}},"then":[],"else":[{"append":{"target":"xs","value":"$.data.id"}}]}]`,
	} {
		h := compile(t, src)
		ed, state := value.NewEditor(), value.ObjectValue()
		b := work.New(t.Context(), work.Replay)
		var spent int64
		for i := range 2 * n {
			b.Renew(work.Replay)
			ev := &tick.Event{Data: tick.Raw(fmt.Appendf(nil, `{"id":"id-%d"}`, i%n))}
			next, err := h.Apply(ed, state, ev, b, nil)
			if err != nil {
				t.Fatal(err)
			}
			state = next
			spent += b.Spent()
		}
		if strings.Contains(src, `"append_unique"`) || strings.Contains(src, `"upsert"`) ||
			strings.Contains(src, `"includes"`) {
			if got := state.Get("xs").Len(); got != n {
				t.Errorf("%s leaves %d elements", src, got)
			}
		}
		most := int64(2 * n * 100)
		if strings.Contains(src, `"upsert"`) {
			most += int64(n * n / 4) // the elements behind one that is replaced move up
		}
		if spent > most {
			t.Errorf("%s takes %d units an event", src, spent/int64(2*n))
		}
		if state.Size() != len(state.String()) {
			t.Errorf("%s: the state has %d bytes and says %d", src, len(state.String()), state.Size())
		}
	}
}

// An index of elements that are all alike finds the first of them at once, and follows when all of them change.
func TestElementsThatAreAlike(t *testing.T) {
	const n = 60_000
	state := mustParse(t, `{"xs":[`+strings.TrimSuffix(strings.Repeat(`{"id":1},`, n), ",")+`]}`)
	ed, b := value.NewEditor(), work.New(t.Context(), work.Replay)
	look := compile(t, `{"if":{"includes":{"array":"xs","value":{"id":1}}},"then":{"let":{"name":"$f","find":{"in":"xs","where":{"id":1}}}}}`)
	search := compile(t, `{"remove":{"target":"xs","where":{"id":7}}}`)
	change := compile(t, `[{"update_where":{"target":"xs","match":{"id":1},"merge":{"id":2}}},{"update_where":{"target":"xs","match":{"id":2},"merge":{"id":1}}}]`)
	start := worktest.ProcessorTime(t)
	for i := range 40 {
		h := []*tick.Handler{search, look, look, change}[max(0, min(i-10, 3))]
		b.Renew(work.Replay)
		next, err := h.Apply(ed, state, &tick.Event{}, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		if h == look && b.Spent() > 100 {
			t.Errorf("it takes %d units to find the first of %d that are alike", b.Spent(), n)
		}
		state = next
	}
	if took := worktest.Since(t, start); took > 10*time.Second {
		t.Errorf("changes of elements that are alike take %v", took)
	}
}

// What is kept in a second place is given up, and nothing around it: folds that bind, copy or go over parts of the
// state and change others stay linear.
func TestFoldsThatKeepAreLinear(t *testing.T) {
	const n = 20_000
	for _, src := range []string{
		`[{"let":{"name":"$f","find":{"in":"xs","where":{"id":"$.data.id"}}}},{"update_where":{"target":"xs","match":{"id":"$.data.id"},"merge":{"n":"$f.id"}}},{"append":{"target":"xs","value":{"id":"$.data.id","of":"$f"}}}]`,
		`[{"set":{"target":"last","value":{"id":"$.data.id"}}},{"set":{"target":"before","value":"@.last"}},{"append":{"target":"xs","value":"@.last"}}]`,
		`[{"set":{"target":"few","value":[{"a":1},{"a":2}]}},{"map":{"target":"few","apply":{"set":{"target":"b","value":"$item.a"}}}},{"append":{"target":"xs","value":1}}]`,
		`[{"set":{"target":"few","value":[{"a":1},{"a":2}]}},{"update_where":{"target":"few","match":{"a":1},"merge":{"c":"$item"}}},{"append":{"target":"xs","value":"@.few"}}]`,
	} {
		h := compile(t, src)
		ed, state := value.NewEditor(), value.ObjectValue()
		b := work.New(t.Context(), work.Replay)
		var spent int64
		for i := range n {
			b.Renew(work.Replay)
			next, err := h.Apply(ed, state, &tick.Event{Data: tick.Raw(fmt.Appendf(nil, `{"id":"id-%d"}`, i))}, b, nil)
			if err != nil {
				t.Fatal(err)
			}
			state = next
			spent += b.Spent()
		}
		if got := state.Get("xs").Len(); got != n || spent > int64(n)*200 {
			t.Errorf("%s takes %d units an event and leaves %d elements", src, spent/int64(n), got)
		}
	}
}

// Comparisons and sums are charged by what they compare and add, and entries and objects by their members.
func TestWhatIsDoneIsCharged(t *testing.T) {
	list := func(elem string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(elem+",", n), ",") + "]"
	}
	var members strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&members, `,"k%05d":0`, i)
	}
	object := `{` + members.String()[1:] + `}`
	long := strings.Repeat("7", 9999)
	const budget = work.Command
	for _, test := range []struct{ handler, state string }{
		{`{"filter":{"target":"xs","keep":{"equals":["@.a","@.b"]}}}`, `{"a":` + list("0", 200_000) + `,"b":` + list("0", 200_000) + `,"xs":` + list("0", 8000) + `}`},
		{`{"filter":{"target":"xs","keep":{"gt":["@.a","@.b"]}}}`, `{"a":` + long + `,"b":` + long + `,"xs":` + list("0", 40_000) + `}`},
		{`{"filter":{"target":"xs","keep":{"some":{"in":"@.m.$entries","as":"$e","match":{"equals":["$e.key","none"]}}}}}`, `{"m":` + object + `,"xs":` + list("0", 1000) + `}`},
		{`{"map":{"target":"xs","apply":{"set":{"target":"m","value":{"$merge":["$.state.m",{"a":1}]}}}}}`, `{"m":` + object + `,"xs":` + list("{}", 1000) + `}`},
		{`{"map":{"target":"xs","apply":{"increment":{"target":"n","by":"$.state.a"}}}}`, `{"a":` + long + `,"xs":` + list(`{"n":`+long[:900]+`}`, 5000) + `}`},
	} {
		start := worktest.ProcessorTime(t)
		h := compile(t, test.handler)
		_, err := h.Apply(
			value.NewEditor(), mustParse(t, test.state), &tick.Event{}, work.New(t.Context(), budget), nil,
		)
		if took := worktest.Since(t, start); took > 5*time.Second {
			t.Errorf("%s takes %v", test.handler, took)
		}
		if j17.CodeOf(err) != j17.CodeWorkLimit || !h.Heavy(0) {
			t.Errorf("%s ends with %v and is heavy: %t", test.handler, err, h.Heavy(0))
		}
	}
	// Thousands of small sums on a number of nearly as many digits as there may be.
	const sums = 10_000
	h := compile(t, `{"increment":{"target":"n","by":"$.data.by"}}`)
	ed, state := value.NewEditor(), mustParse(t, `{"n":`+strings.Repeat("9", 9998)+`}`)
	start := worktest.ProcessorTime(t)
	for range sums {
		state = apply(t, h, ed, state, &tick.Event{Data: tick.Raw([]byte(`{"by":1}`))}, nil)
	}
	if took := worktest.Since(t, start); took > 3*time.Second {
		t.Errorf("%d sums of %d digits take %v", sums, len(state.Get("n").Num()), took)
	}
	if got := state.Get("n").Num(); got != fmt.Sprintf("1%09998d", sums-1) {
		t.Errorf("the sum is %.20s... of %d digits", got, len(got))
	}
}

// A state does not grow beyond its limit, wherever a fold starts.
func TestStatesHaveALimit(t *testing.T) {
	h := compile(t, `[{"append":{"target":"l","value":"@.b"}},{"set":{"target":"n","value":1}}]`)
	src := `{"b":"` + strings.Repeat("x\\n", 350_000) + `"}`
	ed := value.NewEditor()
	inMemory, text := mustParse(t, src), src
	for i := range 20 {
		var faults []tick.Fault
		tell := func(f tick.Fault) { faults = append(faults, f) }
		inMemory = tick.Stamp(ed, apply(t, h, ed, inMemory, &tick.Event{}, tell), 5, 1_700_000_000)
		again, err := value.ParseStored(text)
		if err != nil {
			t.Fatal(err)
		}
		fresh := value.NewEditor()
		stored := tick.Stamp(fresh, apply(t, h, fresh, again, &tick.Event{}, nil), 5, 1_700_000_000)
		text = stored.String()
		if inMemory.String() != text {
			t.Fatal("a fold from a stored state gives another one")
		}
		if size := len(text); size > tick.MaxState || inMemory.Get("n").IsMissing() {
			t.Fatalf("after %d events the state has %d bytes", i+1, size)
		}
		if full := inMemory.Get("l").Len() >= 6 && i >= 7; full &&
			(len(faults) != 1 || !strings.Contains(faults[0].Message, "the state would be larger than 8 MiB")) {
			t.Fatalf("event %d has the faults %v", i, faults)
		}
	}
}

// A state does not get more values than it may have, however few bytes they take; one that has more of them already can
// still shrink, change and be read.
func TestStatesHaveALimitOfValues(t *testing.T) {
	zeros := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }
	// Room for two beside the time stamps.
	full := `{"xs":` + zeros(tick.MaxValues-13) + `,"o":{"a":1},"es":[{"a":1},{"a":1}]}`
	beyond := `{"xs":` + zeros(2*tick.MaxValues) + `,"o":{},"es":[]}`
	for _, test := range []struct {
		state, handler, data string
		refused              bool
	}{
		{full, `{"append":{"target":"o.l","value":1}}`, `{}`, false},
		{full, `{"append":{"target":"o.l","value":[1]}}`, `{}`, true},
		{full, `{"append":{"target":"es","value":{"$":"$.data"}}}`, `{"a":1,"b":[0]}`, true},
		{full, `{"set":{"target":"o","value":"$.data"}}`, `{"a":1,"b":2}`, false},
		{full, `{"set":{"target":"o","value":"$.data"}}`, `{"a":1,"b":[2,3]}`, true},
		{full, `{"set":{"target":"","value":{"all":"@"}}}`, `{}`, false},
		{full, `{"set":{"target":"","value":["@","@.o"]}}`, `{}`, true},
		{full, `{"merge":{"target":"o","value":{"b":1,"c":1}}}`, `{}`, false},
		{full, `{"merge":{"target":"o","value":{"b":1,"c":1,"d":1}}}`, `{}`, true},
		{full, `{"update_where":{"target":"es","match":{"a":1},"merge":{"b":1}}}`, `{}`, false},
		{full, `{"update_where":{"target":"es","match":{"a":1},"merge":{"b":1,"c":1}}}`, `{}`, true},
		{full, `{"upsert":{"target":"es","match":{"a":1},"value":[1,2,3,4,5]}}`, `{}`, false},
		{full, `{"upsert":{"target":"es","match":{"a":1},"value":[1,2,3,4,5,6]}}`, `{}`, true},
		{full, `{"map":{"target":"es","apply":{"set":{"target":"b","value":1}}}}`, `{}`, false},
		{full, `{"map":{"target":"es","apply":{"set":{"target":"b","value":[1]}}}}`, `{}`, true},
		{full, `{"set_at":{"target":"o","key":"b","value":[1,2]}}`, `{}`, true},
		{full, `{"merge_at":{"target":"o","key":"b","value":{"x":1,"y":2}}}`, `{}`, true},
		{beyond, `{"set":{"target":"o.a","value":1}}`, `{}`, true},
		{beyond, `{"set":{"target":"o","value":2}}`, `{}`, false},
		{beyond, `{"remove_at":{"target":"","key":"es"}}`, `{}`, false},
		{beyond, `{"set":{"target":"xs","value":[]}}`, `{}`, false},
	} {
		ed, state := value.NewEditor(), mustParse(t, test.state)
		before := state.Weight().Values
		var faults []tick.Fault
		next := apply(
			t, compile(t, test.handler), ed, state, &tick.Event{Data: tick.Raw([]byte(test.data))},
			func(f tick.Fault) { faults = append(faults, f) },
		)
		refused := len(faults) > 0 && strings.Contains(faults[0].Message, "the state would have more than 1048576 values")
		if refused != test.refused {
			t.Errorf("%s on %.30s: %v", test.handler, test.state, faults)
		}
		stamped := tick.Stamp(ed, next, 1, 2)
		if n := stamped.Weight().Values; n != values(stamped) || n > max(before+2, tick.MaxValues) {
			t.Errorf("%s on %.30s leaves %d values, and says %d", test.handler, test.state, values(stamped), n)
		}
	}
}

// values returns the number of values in v, itself included.
func values(v value.Value) int {
	n := 1
	for _, elem := range v.Elems() {
		n += values(elem)
	}
	for _, m := range v.Members() {
		n += values(m.Value)
	}
	return n
}

// What puts a text together of a container writes it whole each time, also where its weight is known already.
func TestWritingContainersIsCharged(t *testing.T) {
	const n = 100_000
	h := compile(t, `{"if":{"every":{"in":"$.data.ns","as":"$n","match":{"not_equals":[{"$concat":["@.digits","$n"]},"x"]}}},"then":[]}`)
	state := mustParse(t, `{"digits":[`+strings.TrimSuffix(strings.Repeat("7,", n), ",")+`]}`)
	spent := func(times int) int64 {
		data := `{"ns":[` + strings.TrimSuffix(strings.Repeat("1,", times), ",") + `]}`
		b := work.New(t.Context(), work.Command)
		if _, err := h.Apply(value.NewEditor(), state, &tick.Event{Data: tick.Raw([]byte(data))}, b, nil); err != nil {
			t.Fatal(err)
		}
		return b.Spent()
	}
	few := spent(1)
	if each := (spent(11) - few) / 10; each < n/2 || each > n {
		t.Errorf("an array of %d values whose weight is known is written for %d units", n, each)
	}
}
