package projection

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/part"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
	"j17/internal/storage/store"
)

// The side spaces of the definitions posted to an environment. They belong to its data, and are exported.
const (
	// postedSpace has each definition under the projection's name.
	postedSpace store.Space = "projections"
	// headSpace has one item, headKey. Its revision changes with every change of the definitions.
	headSpace store.Space = "projections.head"
)

const headKey = "head"

const (
	// MaxPosted is how many definitions may be posted to an environment, maxPostedBytes their maximum size together.
	MaxPosted      = 1000
	maxPostedBytes = 8 << 20
	// maxChanges is how often a change is tried again after conflicts.
	maxChanges = 20
)

// postedHead summarizes the posted definitions.
type postedHead struct {
	Count int `json:"count"`
	Bytes int `json:"bytes"`
}

// posting is a posted definition.
type posting struct {
	Name       string          `json:"-"`
	Definition json.RawMessage `json:"definition"`
	PostedAt   time.Time       `json:"posted_at"`
	PostedBy   string          `json:"posted_by,omitempty"`
}

// postings are all definitions posted to an environment as of one revision, by name.
type postings struct {
	rev  uint64
	head postedHead
	all  []posting
}

// postedAt reads the posted definitions in a moment.
func postedAt(sm store.Moment) (*postings, error) {
	p := &postings{}
	it, err := sm.Get(headSpace, headKey)
	if errors.Is(err, store.ErrNotFound) {
		return p, nil
	}
	if err == nil {
		p.rev = it.Rev
		p.head, err = store.Decode[postedHead](headSpace, &it)
	}
	if err != nil {
		return nil, err
	}
	items, err := sm.Scan(postedSpace, store.Range{}, MaxPosted)
	if err != nil {
		return nil, err
	}
	p.all = make([]posting, len(items))
	for i := range items {
		if p.all[i], err = store.Decode[posting](postedSpace, &items[i]); err != nil {
			return nil, err
		}
		p.all[i].Name = items[i].Key
	}
	return p, nil
}

// posted reads the definitions posted to an environment.
func (s *Service) posted(ctx context.Context, t j17.Tenant) (*postings, error) {
	sm, err := s.store.Moment(ctx, t)
	if err != nil {
		return nil, err
	}
	defer sm.Close()
	return postedAt(sm)
}

// find returns the definition posted under a name, nil for none.
func (p *postings) find(name string) *posting {
	if i, ok := slices.BinarySearchFunc(
		p.all, name, func(d posting, name string) int { return strings.Compare(d.Name, name) },
	); ok {
		return &p.all[i]
	}
	return nil
}

// write returns the writes that replace the definitions under some names; nil removes one. They hold if nothing else
// has changed since the definitions were read.
func (p *postings) write(change map[string]*posting) ([]store.Side, error) {
	head, sides := p.head, []store.Side{}
	for _, name := range slices.Sorted(maps.Keys(change)) {
		if old := p.find(name); old != nil {
			head.Count--
			head.Bytes -= len(old.Definition)
		}
		next := change[name]
		if next == nil {
			sides = append(sides, store.Side{Op: store.Delete, Space: postedSpace, Key: name})
			continue
		}
		head.Count++
		head.Bytes += len(next.Definition)
		raw, err := json.Marshal(next)
		if err != nil {
			return nil, err
		}
		sides = append(sides, store.Side{Op: store.Put, Space: postedSpace, Key: name, Value: raw})
	}
	switch {
	case head.Count > MaxPosted:
		return nil, j17.Errorf(j17.CodePayloadTooLarge, "The environment has %d posted projections, which is the most that it can have. Remove one, or declare some in the spec.", MaxPosted)
	case head.Bytes > maxPostedBytes:
		return nil, j17.Errorf(j17.CodePayloadTooLarge, "The posted projections of the environment would have more than %d MiB together. Remove one, or declare some in the spec.", maxPostedBytes>>20)
	}
	raw, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	return append(sides, store.Side{Op: store.Put, Space: headSpace, Key: headKey, Value: raw}.On(p.rev)), nil
}

// change changes the posted definitions of an environment under its deployed spec: decide returns the replacements, nil
// for none. After a conflict it is called again.
func (s *Service) change(
	ctx context.Context, t j17.Tenant,
	decide func(*spec.Compiled, *postings) (map[string]*posting, []store.Side, error),
) error {
	var err error
	for range maxChanges {
		err = s.hold(ctx, t, func(compiled *spec.Compiled, deployed store.Fence) error {
			there, err := s.posted(ctx, t)
			if err != nil {
				return err
			}
			changes, more, err := decide(compiled, there)
			if err != nil || len(changes)+len(more) == 0 {
				return err
			}
			var sides []store.Side
			if len(changes) > 0 {
				if sides, err = there.write(changes); err != nil {
					return err
				}
			}
			// The write completes even if the client has disconnected.
			return s.store.Write(context.WithoutCancel(ctx), t, append(sides, more...), deployed)
		})
		if _, overtaken := errors.AsType[*store.SideConflict](err); !overtaken {
			return failure(err)
		}
	}
	return j17.Errorf(j17.CodeBusy, "The projections of the environment are being changed by others. Nothing was changed; try again in a moment.").Because(err)
}

// failure turns the store's error about a change into one for users.
func failure(err error) error {
	if err == nil {
		return nil
	}
	if _, told := errors.AsType[*j17.Error](err); told {
		return err
	}
	return store.UserError(err)
}

// Unwrap returns the definition in the body of a request: {"projection": {...}}, or the definition itself.
func Unwrap(body string) ([]byte, error) {
	v, err := value.ParseString(body)
	if err != nil {
		return nil, j17.Errorf(j17.CodeInvalidJSON, "The request body is not valid JSON: %s", err).Because(err)
	}
	if v.Kind() != value.Object {
		return nil, j17.Errorf(j17.CodeInvalidField, "The request body must be a JSON object: the definition of a projection, or {\"projection\": {...}}")
	}
	inner := v.Get("projection")
	if inner.IsMissing() {
		return []byte(body), nil
	}
	for _, m := range v.Members() {
		if m.Key != "projection" {
			return nil, j17.Errorf(j17.CodeUnknownField, "Unknown field; beside 'projection' there is none").At(j17.Printable(m.Key))
		}
	}
	if inner.Kind() != value.Object {
		return nil, j17.Errorf(j17.CodeInvalidField, "'projection' must be an object: the definition").At("projection")
	}
	// The text is kept unchanged, so that positions in it refer to the definition.
	var parts map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &parts); err != nil {
		return nil, j17.Errorf(j17.CodeInvalidJSON, "The request body is not valid JSON: %s", err).Because(err)
	}
	return parts["projection"], nil
}

// compiled compiles a posted definition. The error is one of CodeInvalidSpec with all findings.
func compiled(definition []byte, in *spec.Compiled) (*spec.Projection, []diag.Diagnostic, error) {
	p, found := lint.CheckProjection(definition, in)
	if p != nil {
		return p, found, nil
	}
	wrong := slices.DeleteFunc(found, func(d diag.Diagnostic) bool { return d.Severity != diag.Error })
	many := "1 error"
	if len(wrong) != 1 {
		many = fmt.Sprintf("%d errors", len(wrong))
	}
	e := j17.Errorf(j17.CodeInvalidSpec, "The definition has %s and was not deployed. Correct what 'errors' lists.", many)
	e.Errors = diag.FieldErrors(wrong)
	return nil, nil, e
}

// ofSpec returns the refusal of a change to a projection of the spec.
func ofSpec(name, action string) error {
	return j17.Errorf(j17.CodeConflict, "The spec declares the projection '%s', so it cannot be %s here. Change the spec and deploy it.", name, action)
}

// Beside reports what a spec would mean for the posted definitions of an environment: those that it declares itself are
// taken over, and those that are invalid under it are removed if it is deployed by force.
func (s *Service) Beside(ctx context.Context, t j17.Tenant, after *spec.Compiled) (part.Beside, error) {
	there, err := s.posted(ctx, t)
	if err != nil {
		return part.Beside{}, store.UserError(err)
	}

	// Each definition is checked.
	var b part.Beside
	gone := map[string]*posting{}
	for i := range there.all {
		d := &there.all[i]
		at := diag.Pointer("/projections").Key(d.Name)
		if after.Projections[d.Name] != nil {
			gone[d.Name] = nil
			b.Taken = append(b.Taken, d.Name)
			b.Found = append(b.Found, diag.Diagnostic{
				Severity: diag.Warning, Pointer: at, Message: "the projection '" + d.Name + "' was posted to this environment; the spec's definition takes its place",
			})
			continue
		}
		if _, found := spec.CompileProjection(d.Definition, after); hasErrors(found) {
			gone[d.Name] = nil
			b.Invalid = append(b.Invalid, d.Name)
			first := found[slices.IndexFunc(found, func(d diag.Diagnostic) bool { return d.Severity == diag.Error })]
			b.Found = append(b.Found, diag.Diagnostic{
				Severity: diag.Error, Pointer: at,
				Message: fmt.Sprintf("the projection '%s', which was posted to this environment, would no longer be valid: at %q: %s", d.Name, first.Pointer, first.Message),
				Hint:    "keep in the spec what it needs, remove it first, or deploy with \"force\": true, which removes it",
			})
		}
	}

	// Prepared definitions under names that the spec declares are dropped.
	waiting, err := s.store.Scan(ctx, t, preparedSpace, store.Range{}, maxPrepared)
	if err != nil {
		return part.Beside{}, store.UserError(err)
	}
	for i := range waiting {
		name := waiting[i].Key
		if after.Projections[name] == nil {
			continue
		}
		b.Sides = append(b.Sides, store.Side{Op: store.Delete, Space: preparedSpace, Key: name})
		if !slices.Contains(b.Taken, name) {
			b.Found = append(b.Found, diag.Diagnostic{
				Severity: diag.Warning, Pointer: diag.Pointer("/projections").Key(name),
				Message: "a projection '" + name + "' is prepared in this environment; that is given up, and the spec's definition takes its place",
			})
		}
	}

	// The checked definitions must still be in force when the spec is stored.
	if len(gone) > 0 {
		sides, err := there.write(gone)
		b.Sides = append(b.Sides, sides...)
		return b, err
	}
	b.Fences = []store.Fence{{Space: headSpace, Key: headKey, Rev: there.rev}}
	return b, nil
}

func hasErrors(found []diag.Diagnostic) bool {
	return slices.ContainsFunc(found, func(d diag.Diagnostic) bool { return d.Severity == diag.Error })
}
