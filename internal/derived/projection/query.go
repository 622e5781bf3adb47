package projection

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/fold"
	"j17/internal/derived/build"
	"j17/internal/derived/index"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// A query finds the aggregates of a type by a field of their states. All queries of an environment about the same field
// share one index over the states. The candidates are the aggregates that the index shows, and those with events
// between its position and that of the read. All of these are loaded as of the position of the read, and their states
// decide. So a query is exact without waiting for the index.

// The first value of an entry in such an index is the meaning of the second one.
const (
	plainValue   = iota // the value of the field, or of an element of it
	hashedValue         // a digest of an array or an object
	unknownValue        // the aggregate may have any value: there are too many, or its state cannot be computed
)

// querySemantics is the version of the content of such indexes.
const querySemantics = "1"

// maxTouched is how many events between the position of an index and that of a read may be looked at before the read
// waits for the index.
const maxTouched = 1000

// indexReader finds aggregates by the indexes of queries.
type indexReader struct {
	indexes  *index.Service
	readings *readings
	adopting *turns
}

// queryIndex returns the index for queries about a field of the states of a type, under the spec of a moment.
func (s *indexReader) queryIndex(m *fold.Moment, q *spec.Query) *index.Definition {
	name, field := q.AggregateType, q.Field
	handlers := m.Decider().Program(name).Fingerprint
	sum := sha256.Sum256([]byte(querySemantics + " " + string(handlers[:]) + name + " " + field.Text))
	return &index.Definition{
		ID:   "query/" + name + "/" + hex.EncodeToString(sum[:16]),
		Type: name,
		Rows: func(ctx context.Context, _ j17.Tenant, at j17.StreamID, ids []string) ([]index.Row, error) {
			return queryRows(ctx, m.Moved(at), name, field.Steps, ids)
		},
		Learn: func(ctx context.Context, _ j17.Tenant, events []*j17.Event, rewrites uint64) error {
			return m.Learn(ctx, events, rewrites)
		},
	}
}

// queryRows computes the entries of aggregates in the index of a field, a bounded number of aggregates at a time.
func queryRows(
	ctx context.Context, m *fold.Moment, name string, steps []value.Step, ids []string,
) ([]index.Row, error) {
	rows := make([]index.Row, 0, len(ids))
	for chunk := range slices.Chunk(ids, maxChunk) {
		some, err := querySome(ctx, m, name, steps, chunk)
		if err != nil {
			return nil, err
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// querySome is queryRows for one such part.
func querySome(
	ctx context.Context, m *fold.Moment, name string, steps []value.Step, ids []string,
) ([]index.Row, error) {
	keys := make([]j17.Key, len(ids))
	for i, id := range ids {
		keys[i] = j17.Key{Type: name, ID: id}
	}
	rows := make([]index.Row, len(ids))
	states, err := m.Load(ctx, keys, false)
	if _, one := errors.AsType[*fold.LoadError](err); one && len(ids) > 1 {
		// The aggregates that cannot be computed are found by trying each.
		for i := range ids {
			some, err := querySome(ctx, m, name, steps, ids[i:i+1])
			if err != nil {
				return nil, err
			}
			rows[i] = some[0]
		}
		return rows, nil
	} else if one && Permanent(err) {
		return []index.Row{{ID: ids[0], Entries: []index.Entry{unknownEntry()}}}, nil
	} else if err != nil {
		return nil, err
	}
	for i := range states {
		rows[i].ID = ids[i]
		if states[i].Version.Length > 0 {
			rows[i].Entries = fieldEntries(fieldOf(&states[i], steps))
		}
	}
	return rows, nil
}

// fieldOf follows the steps of a query. "id" is the aggregate's own ID unless its state has one.
func fieldOf(s *fold.Loaded, steps []value.Step) value.Value {
	if len(steps) == 1 && s.Data.Kind() == value.Object {
		if shown := value.ObjectValue(value.Member{
			Key: "id", Value: value.StringValue(s.Key.ID),
		}); s.Data.Get("id").IsMissing() && !shown.At(steps).IsMissing() {
			return shown.At(steps)
		}
	}
	return s.Data.At(steps)
}

// fieldEntries returns the entries of an aggregate for the value of the field: for the value itself, and for the
// elements of an array.
func fieldEntries(field value.Value) []index.Entry {
	const most = 10_000
	if field.Len() > most {
		return []index.Entry{unknownEntry()}
	}
	entries, size := []index.Entry{valueEntry(field)}, 0
	seen := map[index.Entry]bool{}
	for _, elem := range field.Elems() {
		if e := valueEntry(elem); !seen[e] {
			if size += e.Size(); size > index.MaxRowBytes {
				return []index.Entry{unknownEntry()}
			}
			seen[e] = true
			entries = append(entries, e)
		}
	}
	return entries
}

func unknownEntry() index.Entry {
	return index.NewEntry(0, value.Int(unknownValue), value.NullValue())
}

func valueEntry(v value.Value) index.Entry { return index.NewEntry(0, entryValues(v)...) }

// entryValues returns the values of an index entry for a value.
func entryValues(v value.Value) []value.Value {
	if k := v.Kind(); k != value.Array && k != value.Object {
		return []value.Value{value.Int(plainValue), v.OrNull()}
	}
	sum := sha256.Sum256(appendCanonical(nil, v))
	return []value.Value{value.Int(hashedValue), value.StringValue(hex.EncodeToString(sum[:]))}
}

// appendCanonical appends a text that is the same for equal values: members are sorted by name, and numbers written by
// value.
func appendCanonical(b []byte, v value.Value) []byte {
	switch v.Kind() {
	case value.Array:
		b = append(b, '[')
		for _, elem := range v.Elems() {
			b = append(appendCanonical(b, elem), ',')
		}
		return append(b, ']')
	case value.Object:
		members := slices.SortedFunc(
			slices.Values(v.Members()), func(a, b value.Member) int { return strings.Compare(a.Key, b.Key) },
		)
		b = append(b, '{')
		for _, m := range members {
			b = append(value.AppendString(b, m.Key), ':')
			b = append(appendCanonical(b, m.Value), ',')
		}
		return append(b, '}')
	case value.Number:
		digits, sign, magnitude := v.AppendDigits(nil)
		return fmt.Appendf(b, "%d:%d:%s", sign, magnitude, digits)
	case value.Missing, value.Null, value.Bool, value.String:
	}
	return v.AppendJSON(b)
}

// query returns the IDs of the aggregates that the query of a source finds for a row, in order.
func (e *evaluation) query(ctx context.Context, r *row, src *spec.Source) ([]string, error) {
	q := src.Query
	wanted, err := e.wanted(r, q)
	if err != nil {
		return nil, err
	}
	candidates, err := e.candidates(ctx, src, wanted)
	if err != nil {
		return nil, err
	}

	// Their states decide.
	keys := make([]j17.Key, len(candidates))
	for i, id := range candidates {
		keys[i] = j17.Key{Type: q.AggregateType, ID: id}
	}
	if err := e.load(ctx, keys); err != nil {
		return nil, err
	}
	var ids []string
	for _, key := range keys {
		l := e.loaded[key]
		if l.err != nil {
			return nil, l.err
		}
		if !e.b.Spend(1 + l.state.At(q.Field.Steps).Len()) {
			return nil, e.b.Err()
		}
		if l.version.Length > 0 && q.Matches(l.state, wanted) {
			ids = append(ids, key.ID)
		}
	}
	r.sets = append(r.sets, Set{Query: q, Wanted: wanted, IDs: ids})
	return ids, nil
}

// wanted returns the values that a query of a row looks for.
func (e *evaluation) wanted(r *row, q *spec.Query) ([]value.Value, error) {
	if q.Value.Param != "" {
		return spec.Wanted(r.params[q.Value.Param]), nil
	}
	found, err := q.Value.Find(e.env, r.params)
	return []value.Value{found.OrNull()}, err
}

// candidates returns the sorted IDs of all aggregates that the query of a source may find at the moment of the
// evaluation.
func (e *evaluation) candidates(ctx context.Context, src *spec.Source, wanted []value.Value) ([]string, error) {
	view, touched, err := e.s.lookups.near(ctx, e.r, src.Query)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	all := index.All(0, len(entryValues(value.NullValue())))
	lanes := [][]index.Range{{all.Equal(value.Int(unknownValue), value.NullValue())}}
	for _, w := range wanted {
		lanes = append(lanes, []index.Range{all.Equal(entryValues(w)...)})
	}
	most := MaxAggregates + len(touched) + 1
	hits, err := view.Scan(e.b, index.Query{Lanes: lanes}, "", most)
	switch {
	case err != nil:
		return nil, indexNotReady(err)
	case len(hits) == most:
		return nil, tooMany(src.Name)
	case !e.b.Spend(len(touched)):
		return nil, e.b.Err()
	}
	ids := make([]string, 0, len(hits)+len(touched))
	for _, hit := range hits {
		ids = append(ids, hit.ID)
	}
	for _, key := range touched {
		ids = append(ids, key.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// near opens the index of a query, and returns with it the aggregates that have events between its position and that of
// a reading. If there are too many, it waits for the index.
func (s *indexReader) near(ctx context.Context, r *reading, q *spec.Query) (*index.View, []j17.Key, error) {
	d := s.queryIndex(r.m, q)
	var wait j17.StreamID
	for {
		view, err := s.indexAt(ctx, r, d, wait)
		if err != nil {
			return nil, nil, err
		}
		from, to := view.Position(), r.m.At()
		if from.Compare(to) > 0 {
			from, to = to, from
		}
		touched, ok, err := s.indexes.Touched(ctx, r.t, []string{q.AggregateType}, from, to, maxTouched)
		if err == nil && ok {
			return view, touched, nil
		}
		view.Close()
		switch {
		case err != nil:
			return nil, nil, store.UserError(err)
		case wait == r.m.At(): // it waited, and the index is far ahead by now
			return nil, nil, indexNotReady(&index.NotReadyError{})
		}
		wait = r.m.At()
	}
}

// indexAt opens an index that a reading needs, at a position or a later one. If the index does not exist, it begins to
// build it. The error is errRedeployed if the index is gone because the reading's projections are no longer in force.
func (s *indexReader) indexAt(
	ctx context.Context, r *reading, d *index.Definition, at j17.StreamID,
) (*index.View, error) {
	s.indexes.Know(ctx, r.t, d) // after a start of the process the definition is unknown
	view, err := s.indexes.At(ctx, r.t, d.ID, at)
	if errors.Is(err, store.ErrNotFound) {
		if err := s.begin(ctx, r, d); err != nil {
			return nil, err
		}
		if err := s.awaitBuild(ctx, r.t, d.ID); err != nil {
			return nil, err
		}
		view, err = s.indexes.At(ctx, r.t, d.ID, at)
	}
	if errors.Is(err, store.ErrNotFound) {
		if over, err := s.isOver(ctx, r); err != nil || over {
			return nil, cmp.Or(err, errRedeployed)
		}
	}
	return view, indexNotReady(err)
}

// begin begins to build a missing index. If the reading is no longer in force it builds nothing, since nobody would
// remove the index.
func (s *indexReader) begin(ctx context.Context, r *reading, d *index.Definition) error {
	defer s.adopting.take(r.t)()
	if over, err := s.isOver(ctx, r); err != nil || over {
		return cmp.Or(err, errRedeployed)
	}
	_, err := s.indexes.Ensure(ctx, r.t, d)
	return store.UserError(err)
}

// isOver reports whether a reading's projections were in force and no longer are.
func (s *indexReader) isOver(ctx context.Context, r *reading) (bool, error) {
	if !r.in.deployed {
		return false, nil // tried or prepared projections were never in force
	}
	now, err := s.readings.now(ctx, r.t)
	return err == nil && now.in != r.in, err
}

// buildWait is how long a read waits for an index that it has begun to build.
const buildWait = work.Wait

// awaitBuild waits until an index is built, at most buildWait.
func (s *indexReader) awaitBuild(ctx context.Context, t j17.Tenant, id string) error {
	waiting, stop := context.WithTimeout(ctx, buildWait)
	defer stop()
	_, err := s.indexes.Await(waiting, t, id)
	switch {
	case ctx.Err() != nil:
		return store.UserError(errors.Join(ctx.Err(), err))
	case waiting.Err() != nil || errors.Is(err, store.ErrNotFound): // it takes longer, or was removed meanwhile
		return nil
	}
	return store.UserError(err)
}

// indexNotReady returns the error for an index that cannot be read yet; any other error is that of the store.
func indexNotReady(err error) error {
	late, ok := errors.AsType[*index.NotReadyError](err)
	switch {
	case errors.Is(err, store.ErrNotFound):
		late = &index.NotReadyError{}
	case !ok:
		return store.UserError(err)
	}
	e := j17.Errorf(j17.CodeIndexNotReady, "The index that this read needs is being built, or is behind: %d of %d are done. Try again in a moment.", late.Done, late.Total)
	switch {
	case late.Failed != "":
		e = j17.Errorf(j17.CodeIndexNotReady, "The index that this read needs could not be built: %s", late.Failed)
	case late.Total == 0:
		e = j17.Errorf(j17.CodeIndexNotReady, "The index that this read needs is being built, or is behind. Try again in a moment.")
	}
	e.Details = build.Progress{Done: late.Done, Total: late.Total}
	return e.Because(err)
}

// unmoved reports whether the queries of a value still find what they found.
func (s *evaluator) unmoved(ctx context.Context, r *reading, d *definition, v *Value) (bool, error) {
	if len(v.Sets) == 0 {
		return true, nil
	}
	types := make([]string, 0, len(v.Sets))
	for i := range v.Sets {
		types = append(types, v.Sets[i].Query.AggregateType)
	}
	since := v.At
	if checked := v.checked.Load(); checked != nil {
		since = *checked
	}
	if since.Compare(r.m.At()) > 0 {
		return false, nil // the value was computed later than the reading
	}
	touched, ok, err := s.indexes.Touched(ctx, r.t, types, since, r.m.At(), maxTouched)
	if err != nil || !ok {
		return false, store.UserError(err)
	}
	if len(touched) == 0 {
		return true, nil
	}

	// The value holds if each touched aggregate is in the same sets as before. Members of a set are among the sources,
	// whose versions have been compared already; the others must still not match.
	e := s.evaluation(r, d, work.New(ctx, maxWork))
	defer e.close()
	if err := e.load(ctx, touched); errors.Is(err, errTooMuch) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	for i := range v.Sets {
		set := &v.Sets[i]
		for _, key := range touched {
			if _, in := slices.BinarySearch(set.IDs, key.ID); in || key.Type != set.Query.AggregateType {
				continue
			}
			if l := e.loaded[key]; l.err != nil || l.version.Length > 0 && set.Query.Matches(l.state, set.Wanted) {
				return false, nil
			}
		}
	}
	return true, nil
}
