package tick_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/lang/diag"
	"j17/internal/lang/tick"
)

func compile(tb testing.TB, src string) *tick.Handler {
	tb.Helper()
	var l diag.List
	h := tick.CompileHandler(mustParse(tb, src), "", &l)
	if h == nil {
		tb.Fatalf("%s does not compile: %v", src, l.All())
	}
	return h
}

// orderData is the data of an event of about 300 bytes.
const orderData = `{"customer_id":"550e8400-e29b-41d4-a716-446655440003","items":[{"sku":"WIDGET-1","name":"Widget","price":29.99,"quantity":2},` +
	`{"sku":"GADGET-2","name":"Gadget","price":19.99,"quantity":1}],"shipping_address":{"street":"123 Main St","city":"Austin","zip":"78701"},"gift":false,"x":12,"sku":"sku-5","s":"confirmed"}`

const orderState = `{"customer_id":"550e8400-e29b-41d4-a716-446655440003","status":"pending","count":5,"total":49.98,"profile":{"name":"A","email":"a@example.com"},` +
	`"items":[` + `{"sku":"sku-0","n":1},{"sku":"sku-1","n":1},{"sku":"sku-2","n":1},{"sku":"sku-3","n":1},{"sku":"sku-4","n":1},` +
	`{"sku":"sku-5","n":1},{"sku":"sku-6","n":1},{"sku":"sku-7","n":1},{"sku":"sku-8","n":1},{"sku":"sku-9","n":1}],"log":[],"created_at":1700000000,"updated_at":1700000000}`

func simpleOperations() [][2]string {
	return [][2]string{
		{"set-literal", `{"set":{"target":"status","value":"active"}}`},
		{"set-timestamp", `{"set":{"target":"seen_at","value":"$.metadata.timestamp"}}`},
		{"set-deep", `{"set":{"target":"profile.name","value":"B"}}`},
		{"set-data-number", `{"set":{"target":"count","value":"$.data.x"}}`},
		{"set-data-string", `{"set":{"target":"status","value":"$.data.s"}}`},
		{"increment", `{"increment":{"target":"count","by":1}}`},
		{"increment-decimal", `{"increment":{"target":"total","by":0.01}}`},
		{"increment-by-data", `{"increment":{"target":"count","by":"$.data.x"}}`},
		{"increment-at", `{"increment_at":{"target":"votes","key":"a","by":1}}`},
		{"if-then", `{"if":{"equals":["@.status","pending"]},"then":[{"set":{"target":"count","value":1}}]}`},
		{"upsert-in-10", `{"upsert":{"target":"items","match":{"sku":"sku-5"},"value":{"sku":"sku-5","n":2}}}`},
		{"update-where-in-10", `{"update_where":{"target":"items","match":{"sku":"sku-5"},"merge":{"n":2}}}`},
		{"let-in-10", `[{"let":{"name":"$f","find":{"in":"items","where":{"sku":"sku-5"}}}},{"set":{"target":"count","value":"$f.n"}}]`},
		{"map-of-10", `{"map":{"target":"items","apply":{"set":{"target":"n","value":2}}}}`},
		{"filter-of-10", `{"filter":{"target":"items","keep":{"not_equals":["$item.sku","none"]}}}`},
	}
}

// BenchmarkOperation measures one operation on a state that the editor owns. The event is parsed already.
func BenchmarkOperation(b *testing.B) {
	for _, op := range simpleOperations() {
		b.Run(op[0], func(b *testing.B) {
			h := compile(b, op[1])
			ed := value.NewEditor()
			ev := &tick.Event{
				Key: eventKey, Type: "happened", Timestamp: firstTime,
				Data:     tick.Parsed(mustParse(b, orderData)),
				Metadata: tick.Parsed(mustParse(b, `{"timestamp":1700000000}`)),
			}
			budget := work.New(b.Context(), math.MaxInt64)
			state := apply(b, h, ed, mustParse(b, orderState), ev, nil)
			b.ReportAllocs()
			for b.Loop() {
				state, _ = h.Apply(ed, state, ev, budget, nil)
			}
		})
	}
	b.Run("append", func(b *testing.B) {
		h := compile(b, `{"append":{"target":"log","value":"$.data.x"}}`)
		ed := value.NewEditor()
		ev := &tick.Event{Data: tick.Parsed(mustParse(b, orderData))}
		budget := work.New(b.Context(), math.MaxInt64)
		first := mustParse(b, orderState)
		state := first
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			if n%1000 == 0 {
				state = first
			}
			state, _ = h.Apply(ed, state, ev, budget, nil)
		}
	})
	b.Run("hundred-in-one-event", func(b *testing.B) {
		h := compile(b, "["+strings.TrimSuffix(strings.Repeat(`{"set":{"target":"status","value":"active"}},{"increment":{"target":"count","by":1}},`, 50), ",")+"]")
		ed := value.NewEditor()
		ev := &tick.Event{}
		budget := work.New(b.Context(), math.MaxInt64)
		state := mustParse(b, orderState)
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			state, _ = h.Apply(ed, state, ev, budget, nil)
			n += 100
		}
		b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "ops/s")
	})
}

// BenchmarkEvent measures a whole event of 300 bytes as replay sees it: from stored bytes to the stamped state.
func BenchmarkEvent(b *testing.B) {
	handlers := [][2]string{
		{"reads-nothing", `[{"set":{"target":"status","value":"seen"}}]`},
		{"reads-a-number", `[{"increment":{"target":"count","by":"$.data.x"}}]`},
		{"reads-a-string", `[{"set":{"target":"status","value":"$.data.s"}},{"set":{"target":"by","value":"$.metadata.actor.id"}}]`},
		{"reads-three", `[{"set":{"target":"status","value":"$.data.s"}},{"set":{"target":"zip","value":"$.data.shipping_address.zip"}},{"increment":{"target":"count","by":"$.data.x"}}]`},
		{"reads-everything", `[{"set":{"target":"order","value":"$.data"}},{"set":{"target":"status","value":"pending"}}]`},
		{"upsert-in-10", `[{"upsert":{"target":"items","match":{"sku":"$.data.sku"},"value":"$.data"}}]`},
	}
	for _, h := range handlers {
		b.Run(h[0], func(b *testing.B) {
			h := compile(b, h[1])
			ed := value.NewEditor()
			data, metadata := []byte(orderData), []byte(`{"actor":{"type":"user","id":"550e8400-e29b-41d4-a716-446655440003"},"timestamp":1700000000}`)
			state := mustParse(b, orderState)
			b.SetBytes(int64(len(data) + len(metadata)))
			b.ReportAllocs()
			var ev tick.Event
			budget := work.New(b.Context(), math.MaxInt64)
			for b.Loop() {
				ev = tick.Event{
					Key: eventKey, Type: "happened", Timestamp: firstTime, Data: tick.Raw(data),
					Metadata: tick.Raw(metadata),
				}
				next, _ := h.Apply(ed, state, &ev, budget, nil)
				state = tick.Stamp(ed, next, firstTime, firstTime)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	src := `[{"set":{"target":"","value":"$.data"}},{"if":{"and":[{"exists":"$.data.a"},{"gt":["@.n",5]}]},"then":[{"append":{"target":"log","value":{"$merge":["$.data",{"at":"$.metadata.timestamp"}]}}}]}]`
	v := mustParse(b, src)
	for b.Loop() {
		var l diag.List
		if tick.CompileHandler(v, "", &l) == nil {
			b.Fatal(l.All())
		}
	}
}

// Setting and incrementing scalars of a state that the editor owns takes no memory, whether the event was parsed or
// not.
func TestNoAllocations(t *testing.T) {
	if worktest.RaceDetector {
		t.Skip("the race detector makes pools forget")
	}
	data, metadata := []byte(orderData), []byte(`{"timestamp":1700000000}`)
	for _, op := range simpleOperations()[:10] {
		for _, raw := range []bool{false, true} {
			if raw && strings.HasSuffix(op[0], "string") {
				continue // the string is copied out of the event
			}
			t.Run(fmt.Sprintf("%s/raw=%v", op[0], raw), func(t *testing.T) {
				h := compile(t, op[1])
				ed := value.NewEditor()
				parsed := tick.Parsed(mustParse(t, orderData))
				state := mustParse(t, orderState)
				var ev tick.Event
				budget := work.New(t.Context(), math.MaxInt64)
				step := func() {
					ev = tick.Event{Key: eventKey, Type: "happened", Timestamp: firstTime, Data: parsed}
					if raw {
						ev.Data, ev.Metadata = tick.Raw(data), tick.Raw(metadata)
					}
					next, _ := h.Apply(ed, state, &ev, budget, nil)
					state = tick.Stamp(ed, next, firstTime, firstTime)
				}
				step()
				if n := testing.AllocsPerRun(100, step); n > 0 {
					t.Errorf("%v allocations", n)
				}
			})
		}
	}
}
