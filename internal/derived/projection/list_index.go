package projection

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/decider"
	"j17/internal/derived/index"
	"j17/internal/lang/jsonpath"
	"j17/internal/lang/spec"
)

// rowIndexID returns the ID of the index of a projection's rows, made from what determines its entries: the index
// definitions, the division of texts into words if there are words, and the handlers that the states depend on. So a
// program version with other words begins another index when it starts, and removes the previous one. It is "" if there
// are no indexes.
func rowIndexID(of *decider.Decider, d *definition) string {
	if len(d.Indexes) == 0 {
		return ""
	}
	h := sha256.New()
	_, _ = h.Write(d.IndexFingerprint[:]) // never fails
	if slices.ContainsFunc(d.Indexes, func(x spec.Index) bool { return x.Words }) {
		_, _ = h.Write([]byte(index.WordsVersion()))
	}
	for _, name := range d.IndexTypes() {
		if of.Types[name] == nil {
			return "" // the spec no longer has it
		}
		sum := of.Program(name).Fingerprint
		_, _ = h.Write(sum[:])
	}
	return "rows/" + d.ForEach + "/" + hex.EncodeToString(h.Sum(nil)[:16])
}

// rowIndex returns the index of a projection's rows under the reading's spec; nil if it needs none.
func (s *Service) rowIndex(r *reading, d *definition) *index.Definition {
	id := rowIndexID(r.m.Decider(), d)
	if id == "" {
		return nil
	}
	return &index.Definition{
		ID: id, Type: d.ForEach,
		Types: slices.DeleteFunc(
			d.IndexTypes(), func(name string) bool { return name == d.ForEach && !readsOthers(d) },
		),
		Rows: func(ctx context.Context, _ j17.Tenant, at j17.StreamID, ids []string) ([]index.Row, error) {
			return s.indexRows(ctx, r.as(r.m.Moved(at)), d, ids)
		},
		Learn: func(ctx context.Context, _ j17.Tenant, events []*j17.Event, rewrites uint64) error {
			return r.m.Learn(ctx, events, rewrites)
		},
	}
}

// readsOthers reports whether rows are computed from other aggregates of their own type.
func readsOthers(d *definition) bool {
	for _, stage := range d.IndexStages {
		for _, i := range stage {
			if src := &d.Sources[i]; src.AggregateType == d.ForEach && !src.Key {
				return true
			}
		}
	}
	return false
}

// indexRows returns the entries of rows in the indexes of a projection, each as of the reading's moment. Rows that are
// too much work together are computed in halves.
func (s *Service) indexRows(ctx context.Context, r *reading, d *definition, ids []string) ([]index.Row, error) {
	all := make([]index.Row, len(ids))
	var failed error
	tooMuch := false
	err := s.values.each(ctx, r, d, work.New(ctx, work.Replay), ids, d.IndexStages,
		func(e *evaluation, i int, of *row) {
			all[i].ID = ids[i]
			tooMuch = tooMuch || len(ids) > 1 && j17.CodeOf(of.err) == j17.CodeWorkLimit
			entries, err := e.entries(of)
			switch {
			case j17.CodeOf(err) == j17.CodeAggregateNotFound:
				return
			case err != nil && !Permanent(err):
				failed = cmp.Or(failed, err)
				return
			case err != nil:
				entries = nullEntries(d)
			}
			own := j17.Key{Type: d.ForEach, ID: ids[i]}
			all[i].Entries = entries
			all[i].Sources = slices.DeleteFunc(slices.Clone(of.read), func(key j17.Key) bool { return key == own })
		})
	switch {
	case tooMuch || len(ids) > 1 && j17.CodeOf(err) == j17.CodeWorkLimit:
		first, err := s.indexRows(ctx, r, d, ids[:len(ids)/2])
		if err != nil {
			return nil, err
		}
		second, err := s.indexRows(ctx, r, d, ids[len(ids)/2:])
		return append(first, second...), err
	case j17.CodeOf(err) == j17.CodeWorkLimit:
		return []index.Row{{ID: ids[0], Entries: nullEntries(d)}}, nil
	}
	return all, errors.Join(err, failed)
}

// entries returns the entries of a row whose sources are loaded.
func (e *evaluation) entries(r *row) ([]index.Entry, error) {
	if r.err != nil {
		return nil, r.err
	}
	e.b.Renew(work.Replay)
	e.env.SetDocument(e.document(r))
	entries, size := []index.Entry{index.NewEntry(allRows)}, 0
	for place := range e.d.Indexes {
		x := &e.d.Indexes[place]
		values := make([]value.Value, len(x.Fields))
		for i := range x.Fields {
			v, err := x.Fields[i].Value(e.env, MaxData)
			if err != nil {
				return nil, err
			}
			values[i] = v
		}
		some, ok := entriesOf(x, numberOf(place), values)
		for i := range some {
			size += some[i].Size()
		}
		if entries = append(entries, some...); !ok || beyondLimits(len(entries)-1, size) {
			return nil, tooManyEntries(x)
		}
	}
	return entries, nil
}

// overfull returns the error for a row whose data have too many entries, nil for any other row.
func overfull(d *definition, data value.Value) error {
	return overfullWithin(work.Counted(maxListWork), d, data)
}

// overfullWithin is overfull, charged to a budget, whose error it returns if it is used up first. Entries are counted,
// not created.
func overfullWithin(b *work.Budget, d *definition, data value.Value) error {
	entries, size := 0, 0
	for place := range d.Indexes {
		x := &d.Indexes[place]
		values := make([]value.Value, len(x.Fields))
		for i := range x.Fields {
			path, err := jsonpath.ParseState(x.Fields[i].Name)
			if err != nil {
				return err // the projection was deployed with valid steps
			}
			values[i] = data.At(path.Steps)
		}
		n, bytes, ok := sizeOf(b, x, numberOf(place), values)
		if b.Err() != nil {
			return b.Err()
		}
		if entries, size = entries+n, size+bytes; !ok || beyondLimits(entries, size) {
			return tooManyEntries(x)
		}
	}
	return nil
}

// beyondLimits reports whether a number of entries, or their size together, exceeds what a row may have.
func beyondLimits(entries, size int) bool {
	return entries > index.MaxRowEntries || size > index.MaxRowBytes
}

// tooManyEntries returns the error for a row with too many entries in an index and those before it.
func tooManyEntries(x *spec.Index) error {
	in := "the indexes up to " + string(declaredIndex(fieldNames(x), x.Words))
	return j17.Errorf(j17.CodeProjectionLimit, "The row has more than 10,000 entries in %s, or 1 MiB of them, so that lists find it as if all of its fields were null. Keep its arrays and texts smaller, or index other fields.", in)
}

// entriesOf returns the entries of one index for the values of its fields.
func entriesOf(x *spec.Index, number int, values []value.Value) ([]index.Entry, bool) {
	if !x.Words {
		return index.Entries(number, values...)
	}
	return index.Words(number, textIn(values[0]))
}

// sizeOf returns the number of entries that entriesOf returns, and their size, charged to a budget. It reports false if
// there are none, or the budget is used up.
func sizeOf(b *work.Budget, x *spec.Index, number int, values []value.Value) (entries, size int, ok bool) {
	if !x.Words {
		return index.Measure(b, values...)
	}
	text := textIn(values[0])
	if !b.Spend(dividing*len(text)) || !b.SpendBytes(values[0].Size()) {
		return 0, 0, false
	}
	some, ok := index.Words(number, text)
	for i := range some {
		size += some[i].Size()
	}
	return len(some), size, ok
}

// dividing is the cost of dividing a text into words, in units of work per byte.
const dividing = 4

// textIn returns the text of a field for words: its own, or those of its elements as lines.
func textIn(field value.Value) string {
	texts := []value.Value{field}
	if field.Kind() == value.Array {
		texts = field.Elems()
	}
	var all []string
	for _, v := range texts {
		if v.Kind() == value.String {
			all = append(all, v.Str())
		}
	}
	return strings.Join(all, "\n")
}

// nullEntries returns the entries of a row that cannot be computed.
func nullEntries(d *definition) []index.Entry {
	entries := []index.Entry{index.NewEntry(allRows)}
	for place := range d.Indexes {
		x := &d.Indexes[place]
		nulls := make([]value.Value, len(x.Fields))
		for i := range nulls {
			nulls[i] = value.NullValue()
		}
		some, _ := entriesOf(x, numberOf(place), nulls)
		entries = append(entries, some...)
	}
	return entries
}
