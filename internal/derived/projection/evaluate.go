package projection

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"sync/atomic"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/core/fold"
	"j17/internal/derived/index"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
	"j17/internal/storage/store"
)

// Limits of a value. Exceeding one is an error of CodeProjectionLimit: nothing is cut silently.
const (
	// MaxAggregates is the maximum number of aggregates of one source.
	MaxAggregates = 1000
	// MaxData is the maximum size of data as JSON, in bytes.
	MaxData = 10 << 20
	// maxStates is the maximum size of the states of all sources of an evaluation as JSON, in bytes.
	maxStates = 64 << 20
	// maxWork is the maximum cost of one evaluation, in units of package work, without folding states.
	maxWork = work.Command
)

// limitDetails has the details of CodeProjectionLimit.
type limitDetails struct {
	Source string `json:"source,omitempty"`
	Limit  int    `json:"limit"`
}

func tooMany(source string) error {
	e := j17.Errorf(j17.CodeProjectionLimit, "The source '%s' has more than %d aggregates, which is as many as one source may have. Ask for fewer at a time, or put what is needed of them into one aggregate.", source, MaxAggregates)
	e.Details = limitDetails{source, MaxAggregates}
	return e
}

func tooLarge(source string) error {
	e := j17.Errorf(j17.CodeProjectionLimit, "The data would have more than %d bytes. Select less of the sources.", MaxData)
	if source != "" {
		e = j17.Errorf(j17.CodeProjectionLimit, "With the source '%s' the data would have more than %d bytes. Ask for fewer aggregates at a time.", source, MaxData)
	}
	e.Details = limitDetails{source, MaxData}
	return e
}

func tooMuchRead(source string, limit int) error {
	e := j17.Errorf(j17.CodeProjectionLimit, "With the source '%s' the states that are read have more than %d bytes. Ask for fewer aggregates at a time, or keep what views need in smaller ones.", source, limit)
	e.Details = limitDetails{source, limit}
	return e
}

// errTooMuch reports that the sources of all rows of an evaluation exceed the size that may be loaded together.
var errTooMuch = errors.New("projection: too much is read at once")

// Value is the result of a projection.
type Value struct {
	// Key is the aggregate that it is about; the zero key in the array form if that takes parameters.
	Key j17.Key
	j17.Names
	// Data is JSON, Tag its entity tag.
	Data []byte
	Tag  string
	// Tree is the same as Data; it is missing in cached values.
	Tree value.Value
	// Computed is the time of the computation in Unix seconds, At the position that it is as of.
	Computed int64
	At       j17.StreamID
	// Sources are all aggregates that were read, including missing ones, each once, in the order of their keys;
	// Versions are their versions, the zero Version for a missing one. Sets are the results of queries.
	Sources  []j17.Key
	Versions []fold.Version
	Sets     []Set
	// Err is the reason why there is no value of this row, nil if there is one.
	Err error

	identity [sha256.Size]byte
	// checked is the latest position at which the value was found to be current.
	checked atomic.Pointer[j17.StreamID]
}

// Set is the result of a query: the aggregates of a type that have one of some values in a field.
type Set struct {
	Query  *spec.Query
	Wanted []value.Value
	IDs    []string
}

// row is a value being computed.
type row struct {
	// id is the canonical ID, "" in the array form without one; params are those of the array form.
	id     string
	params map[string]string
	// sources has the loaded sources by their index; those of later stages are missing.
	sources []value.Value
	// read has the aggregates that the row has asked for, in no order.
	read []j17.Key
	sets []Set
	err  error
}

// evaluator computes the values of projections, and caches them.
type evaluator struct {
	engine  *engine.Engine
	indexes *index.Service
	lookups *indexReader
	clock   clock.Clock
	kept    *keptValues
	// maxStates bounds the size of the states of one evaluation, memory that of all evaluations; small evaluations do
	// not count.
	maxStates int
	memory    *work.Pool
}

// evaluation computes values of one projection as of one moment, for many rows together: sources that rows share are
// loaded once, and the sources of one stage are loaded together. It is for one goroutine, and must be closed.
type evaluation struct {
	s *evaluator
	r *reading
	d *definition
	// replay folds all states from the first event on.
	replay bool
	b      *work.Budget
	env    *tick.Env
	loaded map[j17.Key]loaded
	// bytes is the size of the loaded states as JSON.
	bytes int
}

// loaded is an aggregate as sources show it; the state is null if it does not exist.
type loaded struct {
	state   value.Value
	version fold.Version
	err     error
}

func (s *evaluator) evaluation(r *reading, d *definition, b *work.Budget) *evaluation {
	return &evaluation{s: s, r: r, d: d, b: b, env: tick.NewEnv(b), loaded: map[j17.Key]loaded{}}
}

// close releases the memory accounted for states.
func (e *evaluation) close() { e.b.Release() }

// each computes rows of the named form, as many together as memory allows, and calls done for each of them in order.
// All work is charged to b. A returned error concerns all rows.
func (s *evaluator) each(
	ctx context.Context, r *reading, d *definition, b *work.Budget, ids []string, stages [][]int,
	done func(e *evaluation, i int, of *row),
) error {
	e := s.evaluation(r, d, b)
	defer e.close()
	rows := make([]*row, len(ids))
	for i, id := range ids {
		rows[i] = &row{id: id, sources: make([]value.Value, len(d.Sources))}
	}
	err := e.gather(ctx, rows, stages)
	if errors.Is(err, errTooMuch) {
		middle := len(ids) / 2
		e.close()
		if err := s.each(ctx, r, d, b, ids[:middle], stages, done); err != nil {
			return err
		}
		return s.each(ctx, r, d, b, ids[middle:], stages, func(e *evaluation, i int, of *row) { done(e, middle+i, of) })
	}
	if err != nil {
		return err
	}
	for i, of := range rows {
		done(e, i, of)
	}
	return nil
}

// gather loads the sources of rows for some stages. An error of one row is stored in the row; a returned error concerns
// all rows. errTooMuch, for several rows, means that fewer should be computed together.
func (e *evaluation) gather(ctx context.Context, rows []*row, stages [][]int) error {
	// A row of the named form belongs to an aggregate.
	if e.d.IsNamed() {
		keys := make([]j17.Key, 0, len(rows))
		for _, r := range rows {
			key := j17.Key{Type: e.d.ForEach, ID: r.id}
			r.read = append(r.read, key)
			keys = append(keys, key)
		}
		if err := e.load(ctx, keys); err != nil {
			return err
		}
		for i, r := range rows {
			switch l := e.loaded[keys[i]]; {
			case l.err != nil:
				r.err = l.err
			case l.state.Kind() == value.Null && !e.exists(l, keys[i]):
				r.err = j17.Errorf(j17.CodeAggregateNotFound, "Aggregate not found")
			}
		}
	}

	for _, stage := range stages {
		if err := e.stage(ctx, rows, stage); err != nil {
			return err
		}
	}
	return nil
}

// exists distinguishes a missing aggregate from one whose state is null. Singletons always exist.
func (e *evaluation) exists(l loaded, key j17.Key) bool {
	return l.version.Length > 0 || e.r.in.compiled.IDs.IsSingleton(key.ID)
}

// stage loads the sources of one stage.
func (e *evaluation) stage(ctx context.Context, rows []*row, stage []int) error {
	// The IDs of their aggregates.
	ids := make([][]string, len(rows)*len(stage))
	var keys []j17.Key
	for i, r := range rows {
		if r.err != nil {
			continue
		}
		e.env.SetDocument(e.document(r))
		for j, place := range stage {
			src := &e.d.Sources[place]
			found, err := e.ids(ctx, r, src)
			switch {
			case errors.Is(err, errTooMuch) && len(rows) > 1:
				return err
			case errors.Is(err, errTooMuch):
				err = tooMuchRead(src.Name, e.s.maxStates)
			case err == nil && len(found) > MaxAggregates:
				err = tooMany(src.Name)
			}
			if err != nil {
				if ctx.Err() != nil {
					return store.UserError(ctx.Err())
				}
				r.err = err
				break
			}
			ids[i*len(stage)+j] = found
			for _, id := range found {
				key := j17.Key{Type: src.AggregateType, ID: id}
				keys = append(keys, key)
				r.read = append(r.read, key)
			}
		}
	}
	if err := e.load(ctx, keys); errors.Is(err, errTooMuch) && len(rows) == 1 {
		rows[0].err = tooMuchRead(e.largest(stage, ids), e.s.maxStates)
		return nil
	} else if err != nil {
		return err
	}

	// Their content.
	for i, r := range rows {
		for j, place := range stage {
			if r.err == nil {
				e.fill(r, place, ids[i*len(stage)+j])
			}
		}
	}
	return nil
}

// largest returns the name of the source of a stage that has the most aggregates.
func (e *evaluation) largest(stage []int, ids [][]string) string {
	most := 0
	for j := range stage {
		if len(ids[j]) > len(ids[most]) {
			most = j
		}
	}
	return e.d.Sources[stage[most]].Name
}

// ids returns the IDs of the aggregates of a source of a row, in the source's order.
func (e *evaluation) ids(ctx context.Context, r *row, src *spec.Source) ([]string, error) {
	switch {
	case src.Key:
		return []string{r.id}, nil
	case src.Query != nil:
		return e.query(ctx, r, src)
	}
	found, err := src.ID.Find(e.env, r.params)
	if err != nil || !e.b.Spend(found.Len()) {
		return nil, errors.Join(err, e.b.Err())
	}
	return src.IDs(found, e.r.in.compiled.IDs), nil
}

// fill sets a source of a row from the loaded aggregates.
func (e *evaluation) fill(r *row, place int, ids []string) {
	src := &e.d.Sources[place]
	elems := make([]value.Value, 0, len(ids))
	for _, id := range ids {
		key := j17.Key{Type: src.AggregateType, ID: id}
		l := e.loaded[key]
		switch {
		case l.err != nil:
			r.err = l.err
			return
		case !e.exists(l, key):
			continue
		}
		elems = append(elems, l.state)
	}
	switch {
	case src.Many:
		r.sources[place] = value.ArrayValue(elems...)
	case len(elems) == 0:
		r.sources[place] = value.NullValue()
	default:
		r.sources[place] = elems[0]
	}
}

const (
	// firstChunk and maxChunk are how many aggregates are loaded at once: few while their size is unknown.
	firstChunk = 16
	maxChunk   = 256
	// States up to maxStates/smallShare are not accounted for; a chunk above maxStates/largeShare makes the next one
	// smaller.
	smallShare = 64
	largeShare = 16
	// chunkSteps is the factor by which the next chunk grows or shrinks.
	chunkSteps = 4
)

// load loads the aggregates that are not loaded yet. The error is errTooMuch if all of them are too large together.
func (e *evaluation) load(ctx context.Context, keys []j17.Key) error {
	missing := make([]j17.Key, 0, len(keys))
	for _, key := range keys {
		if _, ok := e.loaded[key]; !ok {
			e.loaded[key] = loaded{state: value.NullValue()}
			missing = append(missing, key)
		}
	}
	for n := firstChunk; len(missing) > 0; {
		chunk := missing[:min(n, len(missing))]
		before := e.bytes
		if err := e.loadSome(ctx, chunk); err != nil {
			return err
		}
		if err := e.account(before); err != nil {
			return err
		}
		if missing = missing[len(chunk):]; e.bytes-before > e.s.maxStates/largeShare {
			n = max(1, n/chunkSteps)
		} else {
			n = min(maxChunk, n*chunkSteps)
		}
	}
	return nil
}

// account takes memory for the states loaded since their size was before.
func (e *evaluation) account(before int) error {
	small := e.s.maxStates / smallShare
	switch {
	case e.bytes > e.s.maxStates:
		return errTooMuch
	case e.bytes <= small:
		return nil
	case before <= small:
		before = 0
	}
	if n := int64(e.bytes - before); n > 0 && !e.b.TryHold(e.s.memory, string(e.r.t), n) {
		return e.b.Hold(e.s.memory, string(e.r.t), n, "memory for the sources of a projection")
	}
	return nil
}

// loadSome loads a chunk. If one of its aggregates cannot be folded, they are loaded one by one, and the faulty one
// keeps its error.
func (e *evaluation) loadSome(ctx context.Context, keys []j17.Key) error {
	if !e.b.Spend(len(keys)) {
		return e.b.Err()
	}
	states, err := e.r.m.Load(ctx, keys, e.replay)
	failed, one := errors.AsType[*fold.LoadError](err)
	switch {
	case ctx.Err() != nil:
		return store.UserError(ctx.Err())
	case one && len(keys) == 1:
		e.loaded[keys[0]] = loaded{state: value.NullValue(), err: failed.Err}
		return nil
	case one:
		for i := range keys {
			if err := e.loadSome(ctx, keys[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	case err != nil:
		return err
	}
	for i := range states {
		if err := e.take(&states[i]); err != nil {
			return err
		}
	}
	return nil
}

// take stores an aggregate as sources show it: its state, with its ID put first unless the state has an "id".
func (e *evaluation) take(s *fold.Loaded) error {
	l := loaded{state: s.Data, version: s.Version}
	e.bytes += len(s.JSON)
	if s.Version.Length == 0 {
		if l.state = value.NullValue(); e.r.in.compiled.IDs.IsSingleton(s.Key.ID) {
			l.state = value.ObjectValue()
		}
	}
	if l.state.Kind() == value.Object && l.state.Get("id").IsMissing() {
		if !e.b.Spend(1 + l.state.Len()) {
			return e.b.Err()
		}
		members := make([]value.Member, 0, 1+l.state.Len())
		members = append(members, value.Member{Key: "id", Value: value.StringValue(s.Key.ID)})
		l.state = value.ObjectValue(append(members, l.state.Members()...)...)
	}
	e.loaded[s.Key] = l
	return nil
}

// document returns the "$" of a row: the loaded sources, in the order of the definition.
func (e *evaluation) document(r *row) value.Value {
	members := make([]value.Member, 0, len(r.sources))
	for i, v := range r.sources {
		if !v.IsMissing() {
			members = append(members, value.Member{Key: e.d.Sources[i].Name, Value: v})
		}
	}
	return value.ObjectValue(members...)
}

// result computes the data of a row whose sources are all loaded.
func (e *evaluation) result(r *row) (value.Value, error) {
	tree := e.document(r)
	if e.d.IsNamed() {
		e.env.SetDocument(tree)
		made, ok, err := e.d.Select.Eval(e.env, MaxData)
		switch {
		case errors.Is(err, tick.ErrTooLarge):
			return tree, tooLarge("")
		case err != nil:
			return tree, err
		case !ok:
			return value.NullValue(), nil
		}
		tree = made
	}
	weight, n := tree.Weigh()
	switch {
	case !e.b.Spend(n):
		return tree, e.b.Err()
	case weight.Bytes > MaxData:
		return tree, tooLarge(e.heaviest(r))
	case !e.b.SpendBytes(weight.Bytes):
		return tree, e.b.Err()
	}
	return tree, nil
}

// heaviest returns the name of the source that makes the data of a row of the array form too large; "" in the named
// form.
func (e *evaluation) heaviest(r *row) string {
	if e.d.IsNamed() {
		return ""
	}
	bytes := 0
	for i, v := range r.sources {
		if bytes += v.Size(); bytes > MaxData {
			return e.d.Sources[i].Name
		}
	}
	return ""
}

// value completes a row.
func (e *evaluation) value(r *row) *Value {
	v := &Value{
		At: e.r.m.At(), Computed: e.s.clock.Now().Unix(), Sets: r.sets, Err: r.err,
		identity: e.d.identity(e.r.m.Decider()),
	}
	if r.id != "" {
		v.Key = j17.Key{Type: e.d.ForEach, ID: r.id}
	}
	e.name(r, v)
	if v.Err != nil {
		return v
	}
	if v.Tree, v.Err = e.result(r); v.Err == nil {
		v.Data = v.Tree.AppendJSON(make([]byte, 0, v.Tree.Size()))
		v.Tag = tagOf(v.Data)
	}
	return v
}

// name sets the sources and versions of a value to those that the row has read.
func (e *evaluation) name(r *row, v *Value) {
	slices.SortFunc(r.read, j17.Key.Compare)
	v.Sources = slices.Clone(slices.Compact(r.read))
	v.Versions = make([]fold.Version, len(v.Sources))
	for i, key := range v.Sources {
		v.Versions[i] = e.loaded[key].version
	}
}

// tagOf returns the entity tag of data.
func tagOf(data []byte) string {
	sum := sha256.Sum256(data)
	return `"` + hex.EncodeToString(sum[:12]) + `"`
}
