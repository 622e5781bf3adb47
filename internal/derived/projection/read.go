package projection

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// Ask selects a value.
type Ask struct {
	Name string
	// ID is the ID in the path, "" if there is none.
	ID string
	// Params are the parameters of the projection. Takes are the names of the API's own parameters that the request may
	// have, for messages about misspelt ones.
	Params map[string]string
	Takes  []string
	// Until, if not nil, leaves out events later than that Unix second.
	Until *int64
	// Synchronous folds all states from the first event on.
	Synchronous bool
}

// Reply is a value that is exact as of a position.
type Reply struct {
	*Value
	// Position is zero before the first event. Past reports that the value is as of a past time.
	Position j17.StreamID
	Past     bool
}

// IsNamed reports whether a projection has the named form, and so a list of rows.
func (s *Service) IsNamed(ctx context.Context, t j17.Tenant, name string) (bool, error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		return false, err
	}
	d, err := r.definition(name)
	return err == nil && d.IsNamed(), err
}

// WasNamed reports whether a projection had the named form when the projections of an environment were last read, and
// whether that is known. It reads nothing.
func (s *Service) WasNamed(t j17.Tenant, name string) (named, known bool) {
	in := s.readings.sets.of(t)
	if in == nil || in.all[name] == nil {
		return false, false
	}
	return in.all[name].IsNamed(), true
}

// Read returns the value of a projection, exact as of a position that includes everything acknowledged before the call.
// Its errors are CodeUnknownProjection, CodeAggregateNotFound, CodeInvalidIdentifier, CodeInvalidParameter,
// CodeProjectionLimit and CodeWorkLimit, those of folding a source, and CodeIndexNotReady if a source is a query.
func (s *Service) Read(ctx context.Context, t j17.Tenant, ask *Ask) (*Reply, error) {
	return settled(ctx, func() (*Reply, error) { return s.read(ctx, t, ask) })
}

func (s *Service) read(ctx context.Context, t j17.Tenant, ask *Ask) (*Reply, error) {
	r, err := s.readings.now(ctx, t)
	if err != nil {
		return nil, err
	}
	d, err := r.definition(ask.Name)
	if err != nil {
		return nil, err
	}
	want, err := s.values.wanted(ctx, r, d, ask)
	if err != nil {
		return nil, err
	}
	if ask.Until != nil {
		return s.values.past(ctx, r, d, want, ask)
	}

	of := subject{t, ask.Name, want.text()}
	if ask.Synchronous {
		v, err := s.values.compute(ctx, r, d, want, true)
		if err != nil {
			return nil, err
		}
		s.values.kept.put(of, v)
		return &Reply{Value: v, Position: r.m.At()}, nil
	}
	return s.values.shared(ctx, r, d, want, of)
}

// shared returns the cached value if it is current. Otherwise it computes the value, or waits for a request that does.
func (s *evaluator) shared(ctx context.Context, r *reading, d *definition, want wanted, of subject) (*Reply, error) {
	b := work.New(ctx, maxWork)
	for {
		v := s.kept.get(of)
		if !b.Spend(v.checking()) {
			return nil, b.Err()
		}
		switch good, err := s.current(ctx, r, d, []*Value{v}); {
		case err != nil:
			return nil, err
		case good[0]:
			s.kept.served(1, 0)
			return &Reply{Value: v, Position: r.m.At()}, nil
		}

		running, lead := s.kept.join(of, r.m.At())
		if lead {
			err := s.lead(ctx, r, d, want, of, running)
			return &Reply{Value: running.value, Position: running.at}, err
		}
		select {
		case <-running.done:
		case <-ctx.Done():
			return nil, store.UserError(ctx.Err())
		}

		// A value as of a later position is valid for earlier requests. A value as of an earlier position may be valid
		// too, which the check of the cached value shows; if it is not, the next computation is as of a later position.
		if running.at.Compare(r.m.At()) >= 0 && !errors.Is(running.err, errAbandoned) {
			return &Reply{Value: running.value, Position: running.at}, running.err
		}
	}
}

// lead carries out a computation.
func (s *evaluator) lead(
	ctx context.Context, r *reading, d *definition, want wanted, of subject, running *computation,
) error {
	defer s.kept.finish(of, running)
	v, err := s.compute(ctx, r, d, want, false)
	if err != nil && ctx.Err() != nil {
		return err // waiting requests compute the value themselves
	}
	if running.value, running.err = v, err; err == nil {
		s.kept.put(of, v)
	}
	return err
}

// past computes a value as of a past time.
func (s *evaluator) past(ctx context.Context, r *reading, d *definition, want wanted, ask *Ask) (*Reply, error) {
	if !d.hasPast() {
		return nil, j17.Errorf(j17.CodeInvalidParameter, "A projection with a query has no past: leave 'at' out").At("at")
	}
	v, err := s.compute(ctx, r.as(r.m.Until(*ask.Until)), d, want, ask.Synchronous)
	if err != nil {
		return nil, err
	}
	return &Reply{Value: v, Past: true}, nil
}

// maxVersions is how many sources of cached values are compared at a time, unless one value has more.
const maxVersions = 4096

// current reports for cached values, nil for none, which of them are what would be computed now. Their sources are
// looked up together.
func (s *evaluator) current(ctx context.Context, r *reading, d *definition, values []*Value) ([]bool, error) {
	good, at := make([]bool, len(values)), r.m.At()
	var sources []j17.Key
	var compared []int
	compare := func() error {
		versions, err := r.m.Versions(ctx, sources)
		if err != nil {
			return err
		}
		for _, i := range compared {
			v := values[i]
			same := slices.Equal(versions[:len(v.Sources)], v.Versions)
			versions = versions[len(v.Sources):]
			if !same {
				continue
			}
			if good[i], err = s.unmoved(ctx, r, d, v); err != nil {
				return err
			}
			if good[i] {
				v.checked.Store(&at)
			}
		}
		sources, compared = sources[:0], compared[:0]
		return nil
	}
	for i, v := range values {
		if v == nil || v.identity != d.identity(r.m.Decider()) {
			continue
		}
		if checked := v.checked.Load(); checked != nil && *checked == at || v.At == at {
			good[i] = true // no position has been added since
			continue
		}
		if len(compared) > 0 && len(sources)+len(v.Sources) > maxVersions {
			if err := compare(); err != nil {
				return nil, err
			}
		}
		sources, compared = append(sources, v.Sources...), append(compared, i)
	}
	if len(compared) == 0 {
		return good, nil
	}
	return good, compare()
}

// The cost of checking whether a value is current, in units of work: by itself and for each of its sources.
const (
	checkCost  = 20
	sourceCost = 20
)

// checking returns the cost of checking whether a cached value is current, and of returning it; 0 for nil.
func (v *Value) checking() int {
	if v == nil {
		return 0
	}
	return checkCost + sourceCost*len(v.Sources) + len(v.Data)/work.BytesPerUnit
}

// compute computes a value.
func (s *evaluator) compute(ctx context.Context, r *reading, d *definition, want wanted, replay bool) (*Value, error) {
	e := s.evaluation(r, d, work.New(ctx, maxWork))
	defer e.close()
	e.replay = replay
	s.kept.served(0, 1)
	one := &row{id: want.id, params: want.params, sources: make([]value.Value, len(d.Sources))}
	if err := e.gather(ctx, []*row{one}, d.Stages); err != nil {
		return nil, err
	}
	v := e.value(one)
	if v.Err == nil && d.IsNamed() {
		v.Names, v.Err = r.m.Names(ctx, v.Key)
	}
	v.Tree = value.Value{}
	return v, v.Err
}

// rows returns the values of rows of the named form as of a moment, in the order of their canonical IDs. Current cached
// values are reused. An error of one row is its Err. The work for all of them is charged to b: if it is not enough for
// several, some or all have CodeWorkLimit.
func (s *evaluator) rows(
	ctx context.Context, b *work.Budget, r *reading, d *definition, ids []string,
) ([]*Value, error) {
	values := s.kept.rows(r.t, d.Name, ids)
	for _, v := range values {
		if !b.Spend(v.checking()) {
			return nil, b.Err()
		}
	}
	good, err := s.current(ctx, r, d, values)
	if err != nil {
		return nil, err
	}
	var missing []int
	var others []string
	for i, id := range ids {
		if !good[i] {
			missing, others = append(missing, i), append(others, id)
		}
	}
	s.kept.served(len(ids)-len(missing), len(missing))
	if len(missing) == 0 {
		return values, nil
	}

	err = s.each(ctx, r, d, b, others, d.Stages, func(e *evaluation, i int, of *row) {
		v := e.value(of)
		if v.Err == nil {
			v.Names, v.Err = r.m.Names(ctx, v.Key)
		}
		v.Tree = value.Value{}
		if values[missing[i]] = v; v.Err == nil {
			s.kept.offer(subject{r.t, d.Name, others[i]}, v)
		}
	})
	if len(others) == 1 && j17.CodeOf(err) == j17.CodeWorkLimit {
		values[missing[0]], err = &Value{Key: j17.Key{Type: d.ForEach, ID: others[0]}, At: r.m.At(), Err: err}, nil
	}
	return values, err
}

// wanted identifies a value of a projection, in canonical form.
type wanted struct {
	id     string
	params map[string]string
}

// text returns it as one string.
func (w *wanted) text() string {
	if len(w.params) == 0 {
		return w.id
	}
	names := make([]string, 0, len(w.params))
	for name := range w.params {
		names = append(names, name)
	}
	slices.Sort(names)
	b := []byte(w.id)
	for _, name := range names {
		b = append(b, '&')
		b = append(b, name...)
		b = append(b, '=')
		b = value.AppendString(b, w.params[name])
	}
	return string(b)
}

// wanted reads an Ask.
func (s *evaluator) wanted(ctx context.Context, r *reading, d *definition, ask *Ask) (wanted, error) {
	if d.IsNamed() {
		for _, name := range sorted(ask.Params) {
			return wanted{}, unknownParameter(name, d, ask, nil)
		}
		key, err := s.engine.Resolve(ctx, r.t, d.ForEach, ask.ID)
		return wanted{id: key.ID}, err
	}
	return s.asked(ctx, r, d, ask)
}

// asked reads an Ask for the array form.
func (s *evaluator) asked(ctx context.Context, r *reading, d *definition, ask *Ask) (wanted, error) {
	w := wanted{params: make(map[string]string, len(d.Params))}
	only := d.OnlyParam()
	inPath := only
	if ask.ID == "" {
		inPath = nil
	}

	// The ID in the path.
	switch {
	case ask.ID != "" && d.Keyed():
		id, err := s.identifier(ctx, r, &spec.Param{Name: "key", IDOf: keyed(d)}, ask.ID)
		if err != nil {
			return w, err
		}
		w.id = id
	case ask.ID != "" && only != nil:
		w.params[only.Name] = ask.ID
	case ask.ID != "":
		return w, j17.Errorf(j17.CodeInvalidParameter, "The projection '%s' is asked for with %s, in the query string; nothing stands for what follows its name in the path.", d.Name, names(d.Params)).At("key")
	case d.Keyed():
		return w, j17.Errorf(j17.CodeInvalidParameter, "The projection '%s' is that of an aggregate. Add its id to the path: /_projections/%s/{id}.", d.Name, d.Name).At("key")
	}

	// The parameters of the query string.
	for _, name := range sorted(ask.Params) {
		known := slices.ContainsFunc(d.Params, func(p spec.Param) bool { return p.Name == name })
		switch {
		case !known:
			return w, unknownParameter(name, d, ask, inPath)
		case inPath != nil:
			return w, j17.Errorf(j17.CodeInvalidParameter, "What follows '%s' in the path, '%s', is the parameter '%s' already. Leave it out of the query string.", d.Name, j17.Printable(ask.ID), name).At(name)
		}
		w.params[name] = ask.Params[name]
	}
	for i := range d.Params {
		p := &d.Params[i]
		text, ok := w.params[p.Name]
		if !ok {
			return w, j17.Errorf(j17.CodeInvalidParameter, "The projection '%s' needs the parameter '%s'", d.Name, p.Name).At(p.Name)
		}
		var err error
		if w.params[p.Name], err = s.identifier(ctx, r, p, text); err != nil {
			return w, err
		}
	}
	return w, nil
}

// keyed returns the aggregate types of the sources that are identified by the ID in the path.
func keyed(d *definition) (types []string) {
	for i := range d.Sources {
		if d.Sources[i].Key {
			types = append(types, d.Sources[i].AggregateType)
		}
	}
	return types
}

// identifier returns the canonical form of a text that identifies an aggregate, and any other text unchanged. Public
// names identify aggregates too; a name that no aggregate has is returned unchanged.
func (s *evaluator) identifier(ctx context.Context, r *reading, p *spec.Param, text string) (string, error) {
	var fault error
	for _, typ := range p.IDOf {
		key, err := s.engine.Resolve(ctx, r.t, typ, text)
		switch j17.CodeOf(err) { //nolint:exhaustive // all others are not about the text
		case "":
			return key.ID, nil
		case j17.CodeAggregateNotFound:
			return text, nil
		case j17.CodeInvalidIdentifier:
			fault = j17.At(err, p.Name)
		default:
			return "", err
		}
	}
	return text, fault
}

// unknownParameter returns the error for a parameter that a projection does not take. The message knows the
// projection's own parameters, except the one in the path, and those of the API that the request may have and the
// projection accepts.
func unknownParameter(name string, d *definition, ask *Ask, inPath *spec.Param) error {
	known := make([]string, 0, len(d.Params)+len(ask.Takes))
	for i := range d.Params {
		if &d.Params[i] != inPath {
			known = append(known, d.Params[i].Name)
		}
	}
	for _, ours := range ask.Takes {
		if ours != "at" || d.hasPast() {
			known = append(known, ours)
		}
	}
	says := "known here: " + cmp.Or(strings.Join(known, ", "), "none")
	if meant := cmp.Or(wire.CalledHere(name, known), diag.Nearest(name, known)); meant != "" {
		says = "did you mean '" + meant + "'?"
	}
	return j17.Errorf(j17.CodeInvalidParameter, "Unknown query parameter; %s", says).At(j17.Printable(name))
}

// hasPast reports whether a projection can be read as of a past time. Queries cannot: what they would have found is not
// known.
func (d *definition) hasPast() bool { return len(d.Queries()) == 0 }

// names lists parameters as part of a sentence.
func names(params []spec.Param) string {
	all := make([]string, 0, len(params))
	for i := range params {
		all = append(all, "'"+params[i].Name+"'")
	}
	switch len(all) {
	case 0:
		return "nothing"
	case 1:
		return all[0]
	default:
		return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
	}
}

func sorted(params map[string]string) []string {
	all := make([]string, 0, len(params))
	for name := range params {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
