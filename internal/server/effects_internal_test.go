//go:build !race

package server

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/base/work/worktest"
	"j17/internal/core/command"
	"j17/internal/core/decider"
	"j17/internal/core/engine"
	"j17/internal/derived/index"
	"j17/internal/follow/saga"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// hostileWrite is a spec whose event brings about much of some kinds, and a write of such events.
type hostileWrite struct {
	sagas, steps, listeners, implied, scheduled, cancels, unique, tags int
	place                                                              bool
	// events is how many there are to each of writes aggregates.
	events, writes int
}

func drawHostile(t *rapid.T) hostileWrite {
	some := func(label string, of ...int) int { return rapid.SampledFrom(of).Draw(t, label) }
	return hostileWrite{
		sagas: some("sagas", 0, 0, 1, 40, 100, 400), steps: some("steps", 1, 50),
		listeners: some("listeners", 0, 0, 3, 400),
		implied:   some("implied", 0, 0, 1, 90), scheduled: some("scheduled", 0, 0, 1, 90),
		cancels: some("cancels", 0, 10), unique: some("unique", 0, 0, 1, 5),
		tags: some("tags", 0, 0, 3, 100), place: rapid.Bool().Draw(t, "place"),
		events: some("events", 1, 10, 100, 1000, 10_000), writes: some("writes", 1, 1, 100),
	}
}

// joined returns the parts that make makes, with commas between them.
func joined(n int, part func(i int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = part(i)
	}
	return strings.Join(parts, ",")
}

func (w *hostileWrite) spec() string {
	emit := `"emit":{"aggregate_type":"b","id":"$.id","event_type":"was_seen","data":{"of":"$.data.text"}}`
	cancels := joined(w.cancels, func(i int) string {
		return fmt.Sprintf(`{"aggregate_type":"a","id":"$.key","event_type":"was_ended%d"}`, i)
	})
	implications := joined(w.implied+w.scheduled, func(i int) string {
		if i < w.implied {
			return "{" + emit + "}"
		}
		return `{"schedule":{"delay":"1h",` + emit + `,"cancel_on":[` + cancels + `]}}`
	})
	place := ""
	if w.place {
		place = `,"geo":{"type":"spot","path":"$.data.place"}`
	}
	return fmt.Sprintf(`{"agent_types":["user"],"geo_types":{"spot":{"type":"point"}},"aggregate_types":{
		"a":{"events":{"was_sent":{"schema":{},"handler":[],"tags":{%s},"unique":{%s},"implications":[%s]%s},%s}},
		"b":{"events":{"was_seen":{"schema":{},"handler":[]},"was_done":{"schema":{},"handler":[]}}}},
		"listeners":{%s},"modules":{"sagas":{%s}}}`,
		joined(min(w.tags, 1), func(int) string { return `"word":"$.data.words"` }),
		joined(w.unique, func(i int) string { return fmt.Sprintf(`"u%d":{"value":["$.data.n",%d]}`, i, i) }),
		implications, place,
		joined(10, func(i int) string { return fmt.Sprintf(`"was_ended%d":{"schema":{},"handler":[]}`, i) }),
		joined(w.listeners, func(i int) string {
			return fmt.Sprintf(`"l%d":{"url":"https://example.com/%d","events":["*"]}`, i, i)
		}),
		joined(w.sagas, func(i int) string {
			return fmt.Sprintf(`"s%d":{"trigger":{"aggregate_type":"a","event_type":"was_sent"},"steps":[%s]}`, i, joined(w.steps, func(step int) string {
				return fmt.Sprintf(`{"name":"a_step_with_a_long_name_%d","emit":{"aggregate_type":"b","id":"$.id","event_type":"was_done"}}`, step)
			}))
		}))
}

func (w *hostileWrite) command(tenant j17.Tenant) (*engine.Command, error) {
	c := &engine.Command{Tenant: tenant, Command: command.Command{
		Several: w.writes > 1, Actor: j17.Agent{Type: "user", ID: "0b6e9d4e-6f0a-4f3c-8c53-000000000001"},
	}}
	words := joined(w.tags, func(i int) string { return fmt.Sprintf(`"%s%d"`, strings.Repeat("w", 200), i) })
	for i := range w.writes {
		write := command.Write{Type: "a", ID: fmt.Sprintf("0b6e9d4e-6f0a-4f3c-8c53-%012d", i), Batch: true}
		for n := range max(1, w.events/w.writes) {
			v, err := value.ParseString(fmt.Sprintf(`{"n":%d,"text":"%s","words":[%s],"place":{"lat":1.5,"lng":%d}}`, i*10_000+n, strings.Repeat("t", 100), words, n%90))
			if err != nil {
				return nil, err
			}
			write.Events = append(write.Events, command.Event{Type: "was_sent", Data: v})
		}
		c.Writes = append(c.Writes, write)
	}
	return c, nil
}

// TestWhatAWriteStartsIsCounted writes events of hostile specs, which start sagas, schedule and imply events, and have
// places, tags, unique values and listeners. A write that is too much is refused by what bounds its effects, or for the
// work that they would be, before anything is stored, and never because its commit has become too large.
func TestWhatAWriteStartsIsCounted(t *testing.T) {
	const (
		mostTime   = 3 * time.Second // much more than the second that it may take: others use the machine
		mostMemory = 256 << 20
	)
	writes := []hostileWrite{
		{events: 10_000, writes: 1, listeners: 400, steps: 1},          // deliveries alone
		{events: 10_000, writes: 1, unique: 5, place: true, steps: 1},  // unique values
		{events: 10_000, writes: 100, implied: 1, tags: 3, steps: 1},   // as much as a write may imply
		{events: 100, writes: 100, scheduled: 90, sagas: 1, steps: 50}, // as much as it may schedule, and start
		{events: 1000, writes: 1, sagas: 400, steps: 50},               // sagas
		{events: 10_000, writes: 1, listeners: 3, unique: 1, steps: 1}, // a large write that is good
	}
	rounds := 3
	if os.Getenv("J17_SOAK") != "" {
		rounds = 300
	}
	draw := rapid.Custom(drawHostile)
	for i := range rounds {
		writes = append(writes, draw.Example(i))
	}
	for _, w := range writes {
		file := filepath.Join(t.TempDir(), "spec.json")
		if err := os.WriteFile(file, []byte(w.spec()), 0o600); err != nil {
			t.Fatal(err)
		}
		if c, found := spec.Compile([]byte(w.spec())); c == nil {
			t.Fatal(found)
		}
		d := openDev(t, file)
		s := d.server
		tenant := j17.TenantOf(s.owned()[0].instance, j17.Prod)
		c, err := w.command(tenant)
		if err != nil {
			t.Fatal(err)
		}

		// What it takes.
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := worktest.ProcessorTime(t)
		_, err = s.engine.Execute(t.Context(), c)
		took := worktest.Since(t, began)
		runtime.ReadMemStats(&after)
		t.Logf("%+v: %v of the processor, %d MiB allocated: %v", w, took, (after.TotalAlloc-before.TotalAlloc)>>20, err)
		if took > mostTime || after.HeapSys > before.HeapSys+mostMemory {
			t.Errorf("%+v took %v of the processor and %d MiB of memory (%v)", w, took, (after.HeapSys-before.HeapSys)>>20, err)
		}

		// What it has left.
		started, listErr := s.sagas.List(t.Context(), tenant, saga.Filter{}, 0, 1000)
		if listErr != nil {
			t.Fatal(listErr)
		}
		extent, listErr := s.store.Extent(t.Context(), tenant)
		if listErr != nil {
			t.Fatal(listErr)
		}
		items, listErr := s.store.Scan(t.Context(), tenant, "scheduled", store.Range{}, 10)
		if listErr != nil {
			t.Fatal(listErr)
		}
		switch j17.CodeOf(err) { //nolint:exhaustive // all others are wrong
		case "":
			if len(started) > DefaultSagasPerWrite {
				t.Errorf("%+v has started %d sagas", w, len(started))
			}
		case j17.CodeImplicationLimit, j17.CodeWorkLimit, j17.CodeScheduleLimit:
			if len(started)+len(items) > 0 || extent.Events > 0 {
				t.Errorf("%+v was refused (%v) and has left %d sagas, %d events", w, err, len(started), extent.Events)
			}
		default:
			t.Errorf("%+v: %v", w, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheTableOfEffectsHolds compares the bounds that the table of charges names with those that hold.
func TestTheTableOfEffectsHolds(t *testing.T) {
	for effect, most := range map[work.Effect]int{
		work.Implied: decider.DefaultMaxImplied, work.Saga: DefaultSagasPerWrite, work.Answer: DefaultSagasMax,
		work.IndexEntry: index.MaxRowEntries,
	} {
		if c := effect.Charge(); c.Most != most {
			t.Errorf("the table bounds %q by %d, and it is %d", c.Name, c.Most, most)
		}
	}
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, effect := range work.Effects() {
		c := effect.Charge()
		if row := fmt.Sprintf(
			"| %s%s | %d |", strings.ToUpper(c.Name[:1]), c.Name[1:], c.Units,
		); c.Name == "" || c.Units == 0 || !strings.Contains(string(page), row) {
			t.Errorf("operations.md has no row %q", row)
		}
	}
}
