// Package usage counts what each environment uses, day by day, compares it with the plan of its instance and raises
// alerts when much of it is used up. It never refuses anything.
//
// Counting is a few atomic additions on the path of a request. Every few seconds, and when the server stops, the counts
// are added to the totals in the store; a crash loses the counts since then and never counts anything twice, since
// totals are written and not differences.
package usage

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/core/worker"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// The side spaces of the System tenant: a Day under "<tenant>/<yyyy-mm-dd>", and a total under "<tenant>".
const (
	daySpace   store.Space = "usage.days"
	totalSpace store.Space = "usage.totals"
)

// Options configures a meter. Channels may be empty; all other fields are required.
type Options struct {
	Store    store.Sides
	Registry *control.Registry
	Clock    clock.Clock
	Logger   *slog.Logger
	// Worker runs the background work.
	Worker *worker.Kit
	// Channels get every alert, beside the log.
	Channels []Channel
}

// Meter counts usage. It is safe for concurrent use.
type Meter struct {
	store    store.Sides
	registry *control.Registry
	clock    clock.Clock
	logger   *slog.Logger
	worker   *worker.Kit
	channels []Channel
	alerts   *worker.Queue

	mu       sync.RWMutex
	counters map[j17.Tenant]*counter

	// flushing is held while totals change.
	flushing sync.Mutex
	// raised holds the keys of the alerts of raisedMonth that are known to be in the store.
	raised      map[string]bool
	raisedMonth string
}

// Day is what one environment has used on one day (UTC).
type Day struct {
	Date        string          `json:"date"`
	Environment j17.Environment `json:"environment"`
	// Events counts the events written, by whatever wrote them: requests, implications, schedules, sagas, imports.
	Events int64 `json:"events"`
	// Reads counts the reading requests with an API key, Requests all requests with one.
	Reads    int64 `json:"reads"`
	Requests int64 `json:"requests"`
	// StorageBytes is the size of all events of the environment at the end of the day: keys, types, data and metadata.
	StorageBytes int64 `json:"storage_bytes"`
}

func amount(used, limit int64) wire.Amount {
	a := wire.Amount{Used: used, Limit: limit}
	if limit > 0 {
		a.Percent = used/limit*100 + used%limit*100/limit
	}
	return a
}

// total is what an environment has used in a month, and the size of its events.
type total struct {
	Month        string `json:"month"`
	Events       int64  `json:"events"`
	Reads        int64  `json:"reads"`
	Requests     int64  `json:"requests"`
	StorageBytes int64  `json:"storage_bytes"`
}

// counter belongs to one environment.
type counter struct {
	// Counts since the last flush.
	events, bytes, reads, requests atomic.Int64
	// minutes are the events of the last hour.
	minutes minutes

	// The rest is guarded by Meter.flushing.
	loaded bool
	// dirty reports that day and total differ from the store.
	dirty bool
	day   Day
	total total
}

// New returns a meter. Nothing is stored unless Run is called.
func New(o Options) *Meter {
	m := &Meter{
		store: o.Store, registry: o.Registry, clock: o.Clock, logger: o.Logger, worker: o.Worker, channels: o.Channels,
		counters: map[j17.Tenant]*counter{}, raised: map[string]bool{},
	}
	m.alerts = o.Worker.Queue(m.deliveries(o.Store))
	return m
}

func (m *Meter) counter(t j17.Tenant) *counter {
	m.mu.RLock()
	c := m.counters[t]
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c = m.counters[t]; c == nil {
		c = &counter{}
		m.counters[t] = c
	}
	return c
}

func (m *Meter) forget(t j17.Tenant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.counters, t)
}

// Request counts a request to an environment.
func (m *Meter) Request(t j17.Tenant, read bool) {
	c := m.counter(t)
	c.requests.Add(1)
	if read {
		c.reads.Add(1)
	}
}

// Wrap returns st with a count of every event that is committed through it.
func (m *Meter) Wrap(st store.Events) store.Events { return &counting{Events: st, meter: m} }

type counting struct {
	store.Events
	meter *Meter
}

// Append appends, and counts the committed events.
func (s *counting) Append(ctx context.Context, t j17.Tenant, units []store.Append) ([]store.Result, error) {
	results, err := s.Events.Append(ctx, t, units)
	var events, bytes int64
	for i := range results {
		if results[i].Outcome != store.Committed {
			continue
		}
		events += int64(len(units[i].Events))
		for j := range units[i].Events {
			e := &units[i].Events[j]
			bytes += int64(len(e.Key.Type) + len(e.Key.ID) + len(e.Type) + len(e.Data) + len(e.Metadata))
		}
	}
	if events > 0 && t != j17.System {
		s.meter.Loaded(t, events, bytes)
	}
	return results, err
}

// Loaded counts events that were written, and their size.
func (m *Meter) Loaded(t j17.Tenant, events, bytes int64) {
	c := m.counter(t)
	c.events.Add(events)
	c.bytes.Add(bytes)
	c.minutes.add(m.clock.Now(), events)
}

// flushInterval is how often counts are stored.
const flushInterval = 10 * time.Second

// Run stores counts and sends alerts until the context ends, and then stores the last counts.
func (m *Meter) Run(ctx context.Context) error {
	var sender sync.WaitGroup // A receiver of alerts may be slow.
	defer sender.Wait()
	if len(m.channels) > 0 {
		sender.Go(func() { _ = m.alerts.Run(ctx) }) // It ends with the context.
	}
	m.worker.Every(ctx, worker.Loop{Name: "usage_flush", Every: flushInterval, Do: m.Flush, Final: true})
	return nil
}

// Flush stores what has been counted until now and raises the alerts that are due.
func (m *Meter) Flush(ctx context.Context) error {
	m.flushing.Lock()
	defer m.flushing.Unlock()

	// The counts since the last flush, one tenant at a time.
	var changed []j17.Tenant
	var errs []error
	m.mu.RLock()
	tenants := slices.Sorted(maps.Keys(m.counters))
	m.mu.RUnlock()
	for _, t := range tenants {
		id, _, _ := strings.Cut(string(t), "/")
		if _, ok := m.registry.Instances.ByID(id); !ok {
			m.forget(t) // its instance was deleted while it was written to
		} else if c, err := m.collect(ctx, t); err != nil {
			errs = append(errs, err)
		} else if c.dirty {
			changed = append(changed, t)
		}
	}

	// They are stored in parts, so that other writes can come in between.
	for part := range slices.Chunk(changed, 500) {
		if err := m.save(ctx, part); err != nil {
			errs = append(errs, err)
		}
	}

	// Changes may call for an alert.
	instances := map[string]bool{}
	for _, t := range changed {
		id, _, _ := strings.Cut(string(t), "/")
		instances[id] = true
	}
	for id := range instances {
		if err := m.check(ctx, id); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// collect moves new counts into the totals and returns the counter. The caller holds flushing.
func (m *Meter) collect(ctx context.Context, t j17.Tenant) (*counter, error) {
	c := m.counter(t)
	now := m.clock.Now().UTC()
	today, month := now.Format(time.DateOnly), now.Format("2006-01")
	_, env, _ := strings.Cut(string(t), "/")

	// After a start the totals are read from the store.
	if !c.loaded {
		if err := m.load(ctx, &c.total, totalSpace, string(t)); err != nil {
			return nil, err
		}
		c.loaded = true
	}

	// A new day or month. A clock that was set back may have reached a day with counts.
	if c.day.Date != today {
		if c.dirty { // a day that has not been stored yet
			if err := m.save(ctx, []j17.Tenant{t}); err != nil {
				return nil, err
			}
		}
		day := Day{Date: today, Environment: j17.Environment(env)}
		if err := m.load(ctx, &day, daySpace, string(t)+"/"+today); err != nil {
			return nil, err
		}
		c.day = day
	}
	if c.total.Month != month {
		sum, err := m.sum(ctx, t, month)
		if err != nil {
			return nil, err
		}
		sum.StorageBytes = c.total.StorageBytes
		c.total = sum
	}

	// The new counts.
	events, bytes, reads, requests := c.events.Swap(0), c.bytes.Swap(0), c.reads.Swap(0), c.requests.Swap(0)
	if events|bytes|reads|requests != 0 {
		c.dirty = true
	}
	c.total.Events, c.day.Events = c.total.Events+events, c.day.Events+events
	c.total.Reads, c.day.Reads = c.total.Reads+reads, c.day.Reads+reads
	c.total.Requests, c.day.Requests = c.total.Requests+requests, c.day.Requests+requests
	c.total.StorageBytes += bytes
	c.day.StorageBytes = c.total.StorageBytes
	return c, nil
}

// sum adds up the stored days of a month.
func (m *Meter) sum(ctx context.Context, t j17.Tenant, month string) (total, error) {
	const longest = 31
	sum := total{Month: month}
	items, err := m.store.Scan(ctx, j17.System, daySpace, store.Prefix(string(t)+"/"+month+"-"), longest)
	if err != nil {
		return sum, err
	}
	for i := range items {
		d, err := store.Decode[Day](daySpace, &items[i])
		if err != nil {
			return sum, err
		}
		sum.Events, sum.Reads, sum.Requests = sum.Events+d.Events, sum.Reads+d.Reads, sum.Requests+d.Requests
	}
	return sum, nil
}

func (m *Meter) load(ctx context.Context, into any, space store.Space, key string) error {
	it, err := m.store.Get(ctx, j17.System, space, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(it.Value, into); err != nil {
		return &store.CorruptionError{Where: string(space) + "/" + key, Err: err}
	}
	return nil
}

// keepDays is how long days are kept.
const keepDays = 400 * 24 * time.Hour

// save stores the totals of environments. The caller holds flushing.
func (m *Meter) save(ctx context.Context, tenants []j17.Tenant) error {
	sides := make([]store.Side, 0, 2*len(tenants))
	for _, t := range tenants {
		c := m.counter(t)
		day, err := json.Marshal(c.day)
		if err != nil {
			return err
		}
		all, err := json.Marshal(c.total)
		if err != nil {
			return err
		}
		sides = append(sides,
			store.Side{
				Op: store.Put, Space: daySpace, Key: string(t) + "/" + c.day.Date, Value: day,
				Expires: m.clock.Now().Add(keepDays),
			},
			store.Side{Op: store.Put, Space: totalSpace, Key: string(t), Value: all})
	}
	if err := m.store.Write(ctx, j17.System, sides); err != nil {
		return err
	}
	for _, t := range tenants {
		m.counter(t).dirty = false
	}
	return nil
}

// Month returns the use of an instance, named by its handle, in the current month up to now.
func (m *Meter) Month(ctx context.Context, instance string) (wire.Month, error) {
	m.flushing.Lock()
	defer m.flushing.Unlock()
	return m.month(ctx, instance)
}

func (m *Meter) month(ctx context.Context, instance string) (wire.Month, error) {
	var sum total
	for _, env := range j17.Environments() {
		c, err := m.collect(ctx, j17.TenantOf(instance, env))
		if err != nil {
			return wire.Month{}, failure(err)
		}
		sum.Month = c.total.Month
		sum.Events += c.total.Events
		sum.Reads += c.total.Reads
		sum.Requests += c.total.Requests
		sum.StorageBytes += c.total.StorageBytes
	}
	plan := m.registry.Instances.PlanOf(instance)
	return wire.Month{
		Period: sum.Month, Events: amount(sum.Events, plan.EventsPerMonth),
		Storage: amount(sum.StorageBytes, plan.StorageBytes),
		Reads:   sum.Reads, Requests: sum.Requests,
	}, nil
}

// maxDays is the number of days that one request may ask for.
const maxDays = 400

// Days returns the use of each environment of an instance on the days from from to to, both included, up to now. Days
// without use are left out.
func (m *Meter) Days(ctx context.Context, instance string, from, to time.Time) ([]Day, error) {
	// Check the range.
	if to.Sub(from) > maxDays*24*time.Hour {
		return nil, j17.Errorf(j17.CodeInvalidParameter, "At most %d days can be asked for at once.", maxDays).At("from")
	}
	m.flushing.Lock()
	defer m.flushing.Unlock()
	first, last := from.UTC().Format(time.DateOnly), to.UTC().Format(time.DateOnly)
	before := from.UTC().AddDate(0, 0, -1).Format(time.DateOnly)

	// The stored days of each environment, and today from memory.
	days := []Day{}
	for _, env := range j17.Environments() {
		t := j17.TenantOf(instance, env)
		c, err := m.collect(ctx, t)
		if err != nil {
			return nil, failure(err)
		}
		items, err := m.store.Scan(
			ctx, j17.System, daySpace, store.Prefix(string(t)+"/").After(string(t)+"/"+before), maxDays+2,
		)
		if err != nil {
			return nil, failure(err)
		}
		for i := range items {
			d, err := store.Decode[Day](daySpace, &items[i])
			if err != nil {
				return nil, failure(err)
			}
			if d.Date >= first && d.Date <= last && d.Date != c.day.Date {
				days = append(days, d)
			}
		}
		if d := c.day; d.Date >= first && d.Date <= last && (d.Requests != 0 || d.Events != 0) {
			days = append(days, d)
		}
	}

	slices.SortStableFunc(days, func(a, b Day) int { return strings.Compare(a.Date, b.Date) })
	return days, nil
}

// Forget removes the data of an instance that was deleted.
func (m *Meter) Forget(ctx context.Context, instance string) error {
	m.flushing.Lock()
	defer m.flushing.Unlock()
	for _, env := range j17.Environments() {
		t := j17.TenantOf(instance, env)
		m.forget(t)
		sides := []store.Side{{Op: store.Delete, Space: totalSpace, Key: string(t)}}
		items, err := m.store.Scan(ctx, j17.System, daySpace, store.Prefix(string(t)+"/"), 2*maxDays)
		if err != nil {
			return failure(err)
		}
		for _, it := range items {
			sides = append(sides, store.Side{Op: store.Delete, Space: daySpace, Key: it.Key})
		}
		if err := m.store.Write(ctx, j17.System, sides); err != nil {
			return failure(err)
		}
	}
	return nil
}

// failure turns an error of the store into one for users.
func failure(err error) error {
	return j17.Errorf(j17.CodeUnavailable, "What the instance has used cannot be read at the moment. Try again.").Because(err)
}
