package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/edge/client"
)

// degrees returns the parameters of a point.
func degrees(what string, required bool) []parameter {
	return []parameter{
		{"lat", `{"type":"number","minimum":-90,"maximum":90}`, "The latitude of " + what + ", in degrees.", required},
		{"lng", `{"type":"number","minimum":-180,"maximum":180}`, "The longitude of " + what + ", in degrees.", required},
	}
}

// rowPageParameters are those of every list of rows.
func rowPageParameters() []parameter {
	return []parameter{
		{"start", `{"type":"string"}`, "The \"next\" of the page before; the other arguments have to be the same.", false},
		countParameter("rows"),
	}
}

// placeParameters are those of every query for places, around its own ones.
func placeParameters(own ...parameter) []parameter {
	all := append([]parameter{typeParameter()}, own...)
	all = append(all, parameter{"data", `{"type":"boolean"}`, "false leaves the states of the aggregates out of the rows; they stand there otherwise.", false})
	return append(all, rowPageParameters()...)
}

func (s *Server) addListTools() {
	// Rows of projections.
	named := parameter{"name", `{"type":"string"}`, "The projection: one that is for each aggregate of a type (for_each). Those that are an array of sources have no rows: read_projection reads them.", true}
	filters := parameter{
		"filters", `{"type":"object","additionalProperties":{"type":"string"}}`,
		"Which rows are wanted, by indexed fields of the result: {\"status\":\"open\",\"points.gte\":\"10\"}. A field alone asks for a value; behind it may stand " +
			".in (values with commas between them), .prefix, .gt, .gte, .lt, .lte, or .words for an index of words.", false,
	}
	around := append(degrees("a point that rows are to be around, by their distance", false),
		parameter{"radius", `{"type":"number","exclusiveMinimum":0}`, "How far away from that point a row may be, in metres.", false})
	add(s, tool{
		name: "list_rows", title: "List the rows of a projection",
		description: "Lists rows of a projection of the running server, all as of one moment: those that all filters let through, as \"order\" says; without it by the fields of the index that the filters leave open, then by id. " +
			"Filters and orders need an index that the projection declares; a refusal names those that there are. If there are more rows, \"next\" is the \"start\" of the next call.",
		parameters: slices.Concat([]parameter{
			named, filters,
			{"order", `{"type":"string"}`, "The indexed field by which rows come, with - before it for the reverse.", false},
		}, around, rowPageParameters()),
	}, s.listRows)
	add(s, tool{
		name: "count_rows", title: "Count the rows of a projection",
		description: "Returns how many rows of a projection of the running server all filters let through.",
		parameters:  []parameter{named, filters},
	}, s.countRows)

	// Places.
	add(s, tool{
		name: "find_nearby", title: "Find what is around a point",
		description: "Lists the aggregates of one type that are around a point, nearest first, with their distance in metres. If there are more, \"next\" is the \"start\" of the next call.",
		parameters: placeParameters(append(degrees("the point", true),
			parameter{"radius", `{"type":"number","exclusiveMinimum":0}`, "How far away they may be, in metres; without it the nearest are found, however far.", false})...),
	}, placesBy(s, "nearby", nil))
	add(s, tool{
		name: "find_within", title: "Find what is in an area",
		description: "Lists the aggregates of one type that are in an area, in the order of their ids: a box, or a polygon. If there are more, \"next\" is the \"start\" of the next call.",
		parameters: placeParameters(
			parameter{"box", `{"type":"array","items":{"type":"number"},"minItems":4,"maxItems":4}`, "South, west, north and east, in degrees; west is greater than east across the date line.", false},
			parameter{"polygon", `{"type":"array","items":{"type":"number"},"minItems":6,"maxItems":20000}`, "The vertices of the area, in degrees: lat, lng, lat, lng, ...; at most 10,000 of them.", false},
		),
	}, placesBy(s, "within", func(in *placesIn) error {
		if (in.Box == nil) == (in.Polygon == nil) {
			return sentencef("Pass either \"box\" or \"polygon\".")
		}
		return nil
	}))
	add(s, tool{
		name: "find_containing", title: "Find the areas that have a point",
		description: "Lists the aggregates of one type whose areas contain a point, in the order of their ids. If there are more, \"next\" is the \"start\" of the next call.",
		parameters:  placeParameters(degrees("the point", true)...),
	}, placesBy(s, "containing", nil))
}

// rowPageIn selects a page of rows.
type rowPageIn struct {
	page

	Lat    json.Number `json:"lat"`
	Lng    json.Number `json:"lng"`
	Radius json.Number `json:"radius"`
}

// rowsOut is a page of rows. Next is null on the last one.
type rowsOut struct {
	Rows     []json.RawMessage `json:"rows"`
	Next     *string           `json:"next"`
	Position string            `json:"position"`
}

// rows reads a page, of fewer rows than asked for where these are more than an answer may have.
func (s *Server) rows(in page, q url.Values, read func(url.Values) (client.RowPage, error)) (any, error) {
	count := in.size()
	if in.Start != "" {
		q.Set("start", in.Start)
	}
	for {
		q.Set("count", strconv.FormatUint(count, 10))
		p, err := read(q)
		if err != nil {
			return nil, err
		}
		bytes, fit := 0, 0
		for _, row := range p.Rows {
			if bytes += len(row) + 1; bytes > maxAnswer-1024 {
				break
			}
			fit++
		}
		if fit == len(p.Rows) || count == 1 {
			out := rowsOut{Rows: p.Rows, Position: p.Position}
			if p.Next != "" {
				out.Next = &p.Next
			}
			return out, nil
		}
		count = uint64(max(fit, 1))
	}
}

type listIn struct {
	rowPageIn

	Name    string            `json:"name"`
	Filters map[string]string `json:"filters"`
	Order   string            `json:"order"`
}

// query returns the filters as parameters.
func (in *listIn) query() (url.Values, error) {
	if in.Name == "" {
		return nil, sentencef("\"name\" must not be empty.")
	}
	q := url.Values{}
	for name, v := range in.Filters {
		if slices.Contains([]string{"order", "near", "radius", "count", "start"}, name) {
			return nil, sentencef("%q is no filter: no field of an index is called so.", name)
		}
		q.Set(name, v)
	}
	return q, nil
}

func (s *Server) listRows(ctx context.Context, in listIn) (any, error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	if in.Order != "" {
		q.Set("order", in.Order)
	}
	switch given := in.Lat != "" || in.Lng != "" || in.Radius != ""; {
	case given && (in.Lat == "" || in.Lng == "" || in.Radius == ""):
		return nil, sentencef("Rows around a point need all of \"lat\", \"lng\" and \"radius\".")
	case given:
		q.Set("near", in.Lat.String()+","+in.Lng.String())
		q.Set("radius", in.Radius.String())
	}
	rows, err := s.rows(
		in.page, q, func(q url.Values) (client.RowPage, error) { return s.o.Reader.ProjectionRows(ctx, in.Name, q) },
	)
	return rows, withoutRows(in.Name, err)
}

// withoutRows names the tool for a projection that has no rows. The server refuses the number of rows there, which this
// program has asked for itself.
func withoutRows(name string, err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || !strings.Contains(refused.Problem.Message, "has no rows") {
		return err
	}
	said, problem := *refused, *refused.Problem
	problem.Path = ""
	problem.Message = "The projection '" + j17.Printable(name) + "' has no rows: it is not for each aggregate of a type. read_projection reads it, with its parameters."
	said.Problem = &problem
	return &said
}

type countOut struct {
	Projection string `json:"projection"`
	Count      uint64 `json:"count"`
}

func (s *Server) countRows(ctx context.Context, in listIn) (any, error) {
	q, err := in.query()
	if err != nil {
		return nil, err
	}
	n, err := s.o.Reader.CountRows(ctx, in.Name, q)
	if err != nil {
		return nil, withoutRows(in.Name, err)
	}
	return countOut{in.Name, n}, nil
}

type placesIn struct {
	rowPageIn

	Type    string        `json:"type"`
	Box     []json.Number `json:"box"`
	Polygon []json.Number `json:"polygon"`
	Data    *bool         `json:"data"`
}

// placesBy returns a handler of one of the queries for places; check may check its arguments.
func placesBy(s *Server, question string, check func(*placesIn) error) func(context.Context, placesIn) (any, error) {
	return func(ctx context.Context, in placesIn) (any, error) {
		if in.Type == "" {
			return nil, sentencef("The argument \"type\" must not be empty.")
		}
		if check != nil {
			if err := check(&in); err != nil {
				return nil, err
			}
		}
		q := url.Values{}
		for name, n := range map[string][]json.Number{
			"lat": {in.Lat}, "lng": {in.Lng}, "radius": {in.Radius}, "box": in.Box, "polygon": in.Polygon,
		} {
			if len(n) > 0 && n[0] != "" {
				q.Set(name, joined(n))
			}
		}
		if in.Data != nil {
			q.Set("data", strconv.FormatBool(*in.Data))
		}
		return s.rows(
			in.page, q,
			func(q url.Values) (client.RowPage, error) { return s.o.Reader.Places(ctx, in.Type, question, q) },
		)
	}
}

// joined writes numbers with commas between them.
func joined(numbers []json.Number) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = n.String()
	}
	return strings.Join(texts, ",")
}
