package erasure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"j17"
	"j17/internal/core/part"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

const (
	// lease is how long one try may take: its progress is kept.
	lease = 10 * time.Minute
	// atOnce is in how many environments tombstones are executed in parallel; within one environment they take turns.
	atOnce = 4
	// together is how many tombstones of an environment are continued in one try.
	together = 32
	// stepsPerTry is how many steps a try takes for a tombstone before it is the turn of others in the environment.
	stepsPerTry = 64
	// streamsAtOnce is how many streams are rewritten between two writes of the progress.
	streamsAtOnce = 64
	// purgedAtOnce is how many streams are purged between two of them. Each time all tables with data of them are
	// rewritten, which may hold hundreds of thousands of short streams. Tombstones with fewer streams are purged
	// together.
	purgedAtOnce = 1 << 16
	// readAtOnce is how many streams are read at a time.
	readAtOnce = 1000
	// releasedAtOnce is how many streams are rewritten before the parts that keep data of them remove it. Some parts
	// read all their data each time, however few streams there are.
	releasedAtOnce = 2048
)

// execution is a tombstone that is being executed. Its writes require that its claim holds, so that only one of two
// processes continues.
type execution struct {
	*Service
	tenant j17.Tenant
	row    *row
	claim  *worker.Claim
	// try has the executions of the same try.
	try *try
	// steps is how many were taken in this try.
	steps int
	// until is when the removal of the old bytes begins at the latest, if the tombstone has to wait for it.
	until time.Time
	// over reports that the claim is not used any longer.
	over bool
}

// try is one try of several tombstones of an environment, nil for those of which nothing is left to do.
type try []*execution

// open returns the executions whose claims are used.
func (t *try) open() (open []*execution) {
	for _, x := range *t {
		if x != nil && !x.over {
			open = append(open, x)
		}
	}
	return open
}

// removing calls do, which removes old bytes from disk. That may take longer than the lease, so the claims of all
// executions of the try are renewed meanwhile.
func (t *try) removing(ctx context.Context, queue *worker.Queue, do func(context.Context) error) error {
	var claims []*worker.Claim
	for _, x := range t.open() {
		claims = append(claims, x.claim)
	}
	return queue.Keep(ctx, claims, do)
}

// executeAll continues tombstones of an environment. Each step can be repeated, and records its progress.
func (s *Service) executeAll(ctx context.Context, claims []*worker.Claim) []error {
	// Each until only the old bytes are left to remove.
	all, errs, begun := make(try, len(claims)), make([]error, len(claims)), s.o.Clock.Now()
	for i, c := range claims {
		if s.o.Clock.Now().Sub(begun) > lease/2 {
			// The rest of the lease is for the others.
			errs[i] = s.o.Store.Write(ctx, c.Tenant, []store.Side{c.Replace(nil, s.o.Clock.Now())})
			continue
		}
		if all[i], errs[i] = s.take(ctx, c); all[i] != nil {
			all[i].try = &all
			errs[i] = all[i].goOn(ctx, purging)
			all[i].over = errs[i] != nil || all[i].row.Status == Completed
		}
	}

	// Remove the old bytes of several together.
	failed := s.purgeRequested(ctx, all.open())
	if len(failed) == 0 {
		failed = s.purgeTogether(ctx, all.open())
	}

	// Then each to its end, unless it has to wait.
	for i, x := range all {
		if x == nil || x.over {
			continue
		}
		if errs[i] = failed[x]; errs[i] == nil && x.until.IsZero() {
			errs[i] = x.goOn(ctx, "")
		}
		x.over = true
		if errs[i] == nil && x.row.Status != Completed {
			due := s.o.Clock.Now()
			if x.until.After(due) {
				due = x.until
			}
			errs[i] = s.o.Store.Write(ctx, x.tenant, []store.Side{x.claim.Replace(nil, due)})
		}
	}
	return errs
}

// take returns the execution for a claim, nil if there is nothing left to do.
func (s *Service) take(ctx context.Context, c *worker.Claim) (*execution, error) {
	r, err := s.load(ctx, c.Tenant, c.Key)
	if j17.CodeOf(err) == j17.CodeNotFound || err == nil && r.Status != Executing {
		return nil, s.o.Store.Write(ctx, c.Tenant, []store.Side{c.Remove()})
	}
	if err != nil {
		return nil, err
	}
	return &execution{Service: s, tenant: c.Tenant, row: r, claim: c}, nil
}

// goOn takes steps until the phase is the given one, the execution is completed, or it is the turn of others.
func (x *execution) goOn(ctx context.Context, until phase) error {
	for ; x.steps < stepsPerTry && x.row.Status != Completed && x.row.Phase != until; x.steps++ {
		doing := x.row.Phase
		if err := x.step(ctx); err != nil {
			return fmt.Errorf("in the phase %s: %w", doing, err)
		}
	}
	return nil
}

// errNoSpec reports that the spec of the environment is not known yet.
var errNoSpec = errors.New("the spec of the environment is still to be restored")

// step does the next step of the work.
func (x *execution) step(ctx context.Context) error {
	switch x.row.Phase {
	case rooting:
		return x.begin(ctx)
	case finding:
		if x.restoring(x.tenant) {
			return errNoSpec // the spec says which streams are erased too
		}
		return x.find(ctx)
	case rewriting:
		return x.rewriteSome(ctx)
	case purging:
		return x.purgeSome(ctx)
	case certifying:
		return x.complete(ctx)
	default:
		return damaged(x.row.id, fmt.Errorf("it has the phase %q", x.row.Phase))
	}
}

// save stores the progress of the execution, together with other writes.
func (x *execution) save(ctx context.Context, sides ...store.Side) error {
	return x.o.Store.Write(ctx, x.tenant, append(sides, x.put()), x.claim.Fence())
}

func (x *execution) put() store.Side {
	return store.Side{Op: store.Put, Space: rows, Key: x.row.id, Value: x.row.value()}
}

// begin records the execution in the audit log, and the head of the environment's log before it.
func (x *execution) begin(ctx context.Context) error {
	r := x.row
	if r.By != "" {
		act := &Act{Action: ActionExecute, Tombstone: r.id, Key: r.Key, Forced: r.Forced, By: r.By}
		if err := x.o.Record(ctx, x.tenant, act); err != nil {
			return err
		}
		r.By = ""
		if err := x.save(ctx); err != nil {
			return err
		}
	}
	root, size, err := x.o.Root(ctx, x.tenant)
	if err != nil {
		return err
	}
	r.Root, r.Size, r.StartedAt, r.Phase = hash(root).String(), size, x.o.Clock.Now().UTC().Truncate(time.Second),
		finding
	return x.save(ctx)
}

// rewriteSome rewrites the next streams. When there are enough of them, all parts that keep data of them remove it.
func (x *execution) rewriteSome(ctx context.Context) error {
	// A release that another attempt has begun comes first.
	r, last := x.row, false
	if r.Note == "" {
		some, err := x.entries(ctx, x.tenant, r.id, r.Cursor, streamsAtOnce)
		if err != nil {
			return err
		}
		if err := x.rewrite(ctx, some); err != nil {
			return err
		}
		for _, e := range some {
			r.Done++
			r.Events += e.Events
			r.Cursor = e.key.String()
		}
		last = len(some) < streamsAtOnce
	}

	if kept := r.Done - r.Released; r.Note != "" || kept > 0 && (last || kept >= x.kept) {
		if err := x.release(ctx); err != nil {
			return err
		}
	}
	if last {
		r.Phase, r.Cursor, r.Done, r.Released, r.ReleasedTo = purging, "", 0, 0, ""
	}
	return x.save(ctx)
}

// release makes all parts remove their data of the streams that were rewritten since the last release. Another attempt
// passes the same streams and position, so that a part does not record the erasure again under a later position.
func (x *execution) release(ctx context.Context) error {
	r := x.row
	if r.Note == "" {
		present, err := x.present(ctx)
		if err != nil {
			return err
		}
		r.Note = present.String()
		if err := x.save(ctx); err != nil {
			return err
		}
	}
	note, err := j17.ParseStreamID(r.Note)
	if err != nil {
		return damaged(r.id, err)
	}

	gone := part.Erased{Note: note, TombstoneID: r.id, At: r.StartedAt}
	some, err := x.entries(ctx, x.tenant, r.id, r.ReleasedTo, int(r.Done-r.Released))
	if err != nil {
		return err
	}
	for _, e := range some {
		end, err := e.end(note)
		if err != nil {
			return damaged(r.id, err)
		}
		gone.Keys, gone.Ends = append(gone.Keys, e.key), append(gone.Ends, end)
	}
	for i := range x.parts {
		if erase := x.parts[i].Erase.Streams; erase != nil {
			if err := erase(ctx, x.tenant, gone); err != nil {
				return err
			}
		}
	}
	for i := range x.parts {
		if told := x.parts[i].Erase.Gone; told != nil {
			told(x.tenant, gone.Keys)
		}
	}
	r.Note, r.Released, r.ReleasedTo = "", r.Done, r.Cursor
	return nil
}

// spaces returns where parts may have data of streams: under the streams' own keys, and in spaces whose order does not
// distinguish streams.
func (s *Service) spaces() (ofStreams, whole []store.Declared) {
	for i := range s.parts {
		for _, d := range part.Declared(s.parts[i].Spaces) {
			if d.Whole {
				whole = append(whole, d)
			} else {
				ofStreams = append(ofStreams, d)
			}
		}
	}
	return ofStreams, whole
}

// purgeRequested removes the old bytes of tombstones by an engine that does so at times of its own: it asks for that,
// and waits for what does not begin later. It returns the errors, of one of them or of all.
func (s *Service) purgeRequested(ctx context.Context, open []*execution) (failed map[*execution]error) {
	failed = map[*execution]error{}
	if err := s.requestPurge(ctx, open); err != nil {
		for _, x := range open {
			failed[x] = fmt.Errorf("in the phase %s: %w", x.row.Phase, err)
		}
		return failed
	}

	// Those of one request wait for it together.
	var p store.PurgeProgress
	var err error
	last := ""
	for _, x := range open {
		if x.row.Phase != purging || x.row.Purge == "" {
			continue
		}
		if x.row.Purge != last {
			last = x.row.Purge
			err = x.try.removing(ctx, s.queue, func(ctx context.Context) (err error) {
				if p, err = s.o.Store.AwaitPurge(ctx, last); err == nil && !p.Done {
					err = ctx.Err()
				}
				return err
			})
		}
		if failure := x.purgedBy(ctx, p, err); failure != nil {
			failed[x] = fmt.Errorf("in the phase %s: %w", purging, failure)
		}
	}
	return failed
}

// requestPurge asks the engine for the removal of the old bytes of all tombstones of an environment that have come that
// far, and notes the request.
func (s *Service) requestPurge(ctx context.Context, open []*execution) error {
	request := ""
	for _, x := range open {
		if x.row.Phase != purging || x.row.Purge != "" {
			continue
		}
		if request == "" {
			var err error
			if request, err = s.o.Store.RequestPurge(ctx, x.tenant); err != nil || request == "" {
				return err
			}
		}
		x.row.Purge = request
		if err := x.save(ctx); err != nil {
			return err
		}
	}
	return nil
}

// purgedBy takes over how far the request is by which the old bytes are removed.
func (x *execution) purgedBy(ctx context.Context, p store.PurgeProgress, err error) error {
	r := x.row
	switch {
	case errors.Is(err, store.ErrNotFound):
		r.Purge, x.until = "", x.o.Clock.Now() // the data were moved here from another store, which is asked anew
	case err != nil:
		return err
	case !p.Done:
		x.until = p.Until
		return nil
	default:
		r.Purge, r.Purged, r.Done, r.Phase = "", &p.Purged, r.Streams, certifying
	}
	return x.save(ctx)
}

// purgeTogether removes the old bytes of the streams of small tombstones from disk at once, since tables are rewritten
// as a whole however few streams there are. It returns the errors, of one of them or of all.
func (s *Service) purgeTogether(ctx context.Context, open []*execution) (failed map[*execution]error) {
	failed = map[*execution]error{}
	var some []*execution
	streams := uint64(0)
	for _, x := range open {
		r := x.row
		if r.Phase == purging && x.until.IsZero() && r.Cursor == "" && streams+r.Streams <= uint64(s.purged) {
			some, streams = append(some, x), streams+r.Streams
		}
	}
	var keys []j17.Key
	for _, x := range some {
		more, _, err := x.keys(ctx, "", math.MaxInt)
		if err != nil {
			failed[x] = fmt.Errorf("in the phase %s: %w", purging, err)
		}
		keys = append(keys, more...)
	}
	if len(failed) == len(some) {
		return failed
	}
	ofStreams, whole := s.spaces()
	var evidence store.Purged
	purged := some[0].try.removing(ctx, s.queue, func(ctx context.Context) (err error) {
		evidence, err = s.o.Store.Purge(ctx, some[0].tenant, keys, append(ofStreams, whole...), nil)
		return err
	})
	for _, x := range some {
		if failed[x] != nil {
			continue
		}
		err := purged
		if err == nil {
			x.row.Purged, x.row.Done, x.row.Phase = &evidence, x.row.Streams, certifying
			err = x.save(ctx)
		}
		if err != nil {
			failed[x] = fmt.Errorf("in the phase %s: %w", purging, err)
		}
	}
	return failed
}

// purgeSome removes the old bytes of the next streams from disk, and after the last stream those in spaces that do not
// distinguish streams.
func (x *execution) purgeSome(ctx context.Context) error {
	r := x.row
	spaces, whole := x.spaces()
	keys, last, err := x.keys(ctx, r.Cursor, x.purged)
	if err != nil {
		return err
	}
	if last {
		spaces = append(spaces, whole...)
	}
	err = x.try.removing(ctx, x.queue, func(ctx context.Context) error {
		evidence, err := x.o.Store.Purge(ctx, x.tenant, keys, spaces, nil)
		r.Purged = &evidence
		return err
	})
	if err != nil {
		return err
	}
	r.Done += uint64(len(keys))
	if last {
		r.Phase, r.Cursor = certifying, ""
	} else {
		r.Cursor = keys[len(keys)-1].String()
	}
	return x.save(ctx)
}

// keys returns the tombstone's streams after one of them: at least enough of them, or all remaining ones, in which case
// last is true.
func (x *execution) keys(ctx context.Context, after string, enough int) (keys []j17.Key, last bool, err error) {
	for !last && len(keys) < enough {
		some, err := x.entries(ctx, x.tenant, x.row.id, after, readAtOnce)
		if err != nil {
			return nil, false, err
		}
		for _, e := range some {
			keys = append(keys, e.key)
			after = e.key.String()
		}
		last = len(some) < readAtOnce
	}
	return keys, last, nil
}
