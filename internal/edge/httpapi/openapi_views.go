package httpapi

import (
	"maps"
	"slices"
	"strings"

	"j17/internal/edge/openapi"
	"j17/internal/lang/spec"
	"j17/internal/lang/typegen"
)

// maxOwnViews is how many projections an environment may have for each to have paths of its own in the document.
const maxOwnViews = 200

// views adds a row of projections for each projection that it is about, with the parameters that this one takes.
func (w *describer) views(r *route) {
	for _, name := range slices.Sorted(maps.Keys(w.projections)) {
		p := w.projections[name]
		ofID := strings.Contains(r.pattern, "/{id}")
		listed := !ofID && p.IsNamed()
		one := *r
		if of, ok := r.gives.(either); ok && listed {
			one.gives = of.one
		} else if ok {
			one.gives = of.other
		}
		switch {
		case !p.IsNamed() && (strings.HasSuffix(r.pattern, "/_count") || strings.HasSuffix(r.pattern, "/_stream")):
			continue // it has no rows
		case ofID && !p.Keyed() && p.OnlyParam() == nil, !ofID && !listed && p.Keyed():
			continue // what it is asked for with stands elsewhere
		}
		of := w.describe(&one, w.result(name))
		of.ID, of.Path = r.id+"."+name, strings.Replace(of.Path, "{name}", name, 1)

		// Parameters of ours that this projection does not take are left out, and its own are added.
		of.Parameters = slices.DeleteFunc(of.Parameters, func(given openapi.Parameter) bool {
			ours := given.In == "query" && !strings.HasSuffix(of.Path, "stream")
			moment := given.Name == "at" || given.Name == "synchronous"
			return ours && (listed && moment || !listed && !moment || given.Name == "at" && len(p.Queries()) > 0) ||
				listed && given.In == "query" && !w.takes(p, given.Name)
		})
		if listed {
			of.Parameters = append(of.Parameters, filtersOf(p)...)
		}
		for i := range p.Params {
			if only := p.OnlyParam(); !ofID || only == nil {
				of.Parameters = append(of.Parameters, openapi.Parameter{
					Name: p.Params[i].Name, In: "query", About: "A parameter of the projection, which it needs.", Schema: map[string]any{"type": "string"}, Required: true,
				})
			}
		}
		w.b.Add(of, r.id)
	}
}

// result is the schema of what a projection yields.
func (*describer) result(name string) *data {
	return &data{name, reference(typegen.ResultComponent(name))}
}

// takes reports whether lists of a projection take a parameter of ours: there are orders where there are indexes of
// values, and rows are somewhere where their aggregates have places.
func (w *describer) takes(p *spec.Projection, name string) bool {
	switch name {
	case "order":
		return slices.ContainsFunc(p.Indexes, func(x spec.Index) bool { return !x.Words })
	case "near", "radius":
		t := w.spec.Types[p.ForEach]
		return t != nil && t.HasPlaces(spec.Point)
	}
	return true
}

// filtersOf are the filters that the indexes of a projection allow.
func filtersOf(p *spec.Projection) []openapi.Parameter {
	var filters []openapi.Parameter
	add := func(name, about string) {
		if !slices.ContainsFunc(filters, func(f openapi.Parameter) bool { return f.Name == name }) {
			filters = append(filters, openapi.Parameter{
				Name: name, In: "query", About: about, Schema: map[string]any{"type": "string"},
			})
		}
	}
	for i := range p.Indexes {
		for _, field := range p.Indexes[i].Fields {
			if p.Indexes[i].Words {
				add(field.Name+".words", "Rows with all of these words in the field, the last one as a beginning.")
				continue
			}
			add(field.Name, "Rows with this value in the field.")
			add(field.Name+".in", "Rows with one of these values, with commas between them.")
			add(field.Name+".prefix", "Rows whose text begins so.")
			for suffix, about := range map[string]string{
				"gt": "greater than", "gte": "not less than", "lt": "less than", "lte": "not greater than",
			} {
				add(field.Name+"."+suffix, "Rows whose value is "+about+" this one.")
			}
		}
	}
	slices.SortFunc(filters, func(a, b openapi.Parameter) int { return strings.Compare(a.Name, b.Name) })
	return filters
}
