package httpapi

import (
	"cmp"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"j17/internal/openapi"
	"j17/internal/projection"
	"j17/internal/spec"
	"j17/internal/value"
)

// openAPIPath is where each host describes itself.
const openAPIPath = "/_openapi.json"

// maxOwnEvents is how many event types a spec may have for each to have paths of its own in the document. Those of a larger one are
// described by the general routes of their types, and their schemas stand there all the same.
const maxOwnEvents = 2000

// Document is which of the three documents there are.
type Document uint8

// The documents: of the control host, of the hosts of an environment, and of the internal listener.
const (
	ControlDocument Document = iota
	InstanceDocument
	InternalDocument
)

// OpenAPI returns the OpenAPI document of a host; that of an environment with the types of its spec, nil for none. Its size, and what
// it costs, grows with the spec's text and with the number of paths, which has a bound.
func OpenAPI(d Document, version string, c *spec.Compiled) ([]byte, error) {
	of := &projection.Declared{Spec: c}
	if c != nil {
		of.Projections = c.Projections
	}
	return (&API{Options: Options{Version: version}}).describe(d, of)
}

// describe makes a document of the routes that this server has, and of what an environment has; of nothing but the routes without a spec.
func (a *API) describe(d Document, of *projection.Declared) ([]byte, error) {
	info := openapi.Info{Version: cmp.Or(a.Version, "dev"), Statuses: StatusOf, Title: "j17", About: "Errors are in the form of RFC 9457."}
	info.Headers, info.Problems = headersOfAll(), headersOfProblems()
	var sites site
	switch d {
	case ControlDocument:
		sites, info.Title = controlSite, "j17: the control plane"
		info.Server, info.Variables = "https://control.{domain}", map[string]string{"domain": "localhost"}
	case InstanceDocument:
		sites, info.Title = dataSite|adminSite|viewSite, "j17: an environment of an instance"
		info.Server, info.Variables = "https://{host}", map[string]string{"host": "dev.localhost"}
	case InternalDocument:
		sites, info.Title = internalSite, "j17: the internal listener"
		info.Server = "http://localhost:17001"
	}
	b := openapi.New(info)
	w := &describer{b: b, table: operations(), spec: of.Spec, projections: of.Projections}

	all := a.routes()
	for i := range all {
		if all[i].sites&sites != 0 {
			w.add(&all[i])
		}
	}
	if w.spec != nil {
		w.schemas()
	}
	return b.JSON()
}

// describer adds rows of the table of routes to a document.
type describer struct {
	b     *openapi.Builder
	table map[string]operation
	spec  *spec.Compiled
	// projections are those of the spec, and those that were posted beside it.
	projections map[string]*spec.Projection
}

// operation finds how a row is described.
func (w *describer) operation(r *route) (operation, bool) {
	pattern := r.pattern
	for _, mount := range []string{adminPrefix, "/api/instances/{instance_}/ops/{env_}/", "/internal/instances/{instance_}/{env_}/"} {
		if rest, ok := strings.CutPrefix(pattern, mount); ok {
			pattern = rest
		}
	}
	op, ok := w.table[r.method+" "+pattern]
	return op, ok
}

// pathOf is the path of a pattern in a document.
func pathOf(pattern string) string {
	return strings.NewReplacer("{$}", "", "{instance_}", "{instance}", "{env_}", "{environment}").Replace(pattern)
}

// add adds a row, for a row of the aggregates of a spec once for each type, and once for each event type.
func (w *describer) add(r *route) {
	// What the row says.
	op, _ := w.operation(r)
	described := openapi.Operation{
		ID: op.id, Method: r.method, Path: pathOf(r.pattern),
		About: op.about, Security: security(r.access), Parameters: parametersOf(r, op), Optional: op.optional,
	}
	if op.takes != nil {
		described.Body = new(w.content(op.takes, false))
	}
	status, about := http.StatusOK, "OK"
	if op.made {
		status, about = http.StatusCreated, "Created"
	}
	if op.gives != nil || op.accepted == nil {
		described.Answers = []openapi.Answer{{Status: status, About: about, Content: w.content(op.gives, true), Headers: headersOf(r, op)}}
	}
	if op.anew != nil {
		described.Answers[0].About = "OK; nothing is new."
		described.Answers = append(described.Answers, openapi.Answer{Status: http.StatusCreated, About: "Created", Content: w.content(op.anew, true), Headers: headersOf(r, op)})
	}
	if op.accepted != nil {
		described.Answers = append(described.Answers, openapi.Answer{Status: http.StatusAccepted, About: "Accepted: it is done in the background.", Content: w.content(op.accepted, true), Headers: headersOf(r, op)})
	}
	if hasTag(r, op) {
		described.Answers = append(described.Answers, openapi.Answer{Status: http.StatusNotModified, About: "What the client has is current.", Headers: headersOf(r, op)})
	}

	// A row of projections is there for each of them.
	if w.spec != nil && r.sites&viewSite != 0 && len(w.projections) <= maxOwnViews {
		w.views(&described)
		return
	}

	// What is no row of aggregates, or the same for all of them, is there once.
	if w.spec == nil || r.sites&dataSite == 0 || op.alike || !strings.HasPrefix(described.Path, "/{type}") {
		w.b.Add(described, "")
		return
	}

	// Otherwise once for each type, with the events of its own if they are not too many.
	events := 0
	for _, t := range w.spec.Types {
		events += len(t.Events)
	}
	for _, name := range slices.Sorted(maps.Keys(w.spec.Types)) {
		if op.places != "" && !w.spec.Types[name].HasPlaces(op.places) {
			continue
		}
		of := described
		of.ID, of.Path = op.id+"."+name, strings.Replace(described.Path, "{type}", name, 1)
		if !strings.HasSuffix(of.Path, "/{event}") || events > maxOwnEvents {
			w.b.Add(of, op.id)
			continue
		}
		for _, event := range slices.Sorted(maps.Keys(w.spec.Types[name].Events)) {
			if w.spec.Types[name].Events[event].System {
				continue
			}
			one := of
			one.ID, one.Path = of.ID+"."+event, strings.Replace(of.Path, "{event}", event, 1)
			one.OwnBody = true
			one.Body = &openapi.Content{typeJSON: map[string]any{
				"type": "object", "additionalProperties": false, "required": []string{"data", "metadata"},
				"properties": map[string]any{
					"data": reference(name + "." + event), "metadata": reference("Metadata"),
					"conditions": reference("Conditions"),
				},
			}}
			w.b.Add(one, op.id)
		}
	}
}

// schemas adds the schemas of all event types.
func (w *describer) schemas() {
	root, err := value.Parse(w.spec.Source)
	if err != nil {
		return // it has been compiled
	}
	w.b.Define("Conditions", map[string]any{"type": "array", "items": reference("Condition")})
	for _, t := range root.Get("aggregate_types").Members() {
		for _, event := range t.Value.Get("events").Members() {
			if schema := event.Value.Get("schema"); !schema.IsMissing() {
				name := t.Key + "." + event.Key
				w.b.Define(name, openapi.Embedded(name, schema))
			} else {
				w.b.Define(t.Key+"."+event.Key, map[string]any{})
			}
		}
	}
}

func reference(schema string) any { return map[string]any{"$ref": "#/components/schemas/" + schema} }

// content describes a shape as a body: of an answer with "ok" before its members.
func (w *describer) content(shape any, answer bool) openapi.Content {
	schema := func(s any) any {
		if s == nil {
			return nil
		}
		return w.b.Schema(reflect.TypeOf(s))
	}

	// Shapes that are no types of Go.
	switch s := shape.(type) {
	case file:
		return openapi.Content{s.media: map[string]any{}}
	case area:
		return openapi.Content{typeJSON: areaSchema(), typeGeo: areaSchema()}
	case form:
		return openapi.Content{"multipart/form-data": map[string]any{
			"type": "object", "required": []string{"name", "file"},
			"properties": map[string]any{"name": map[string]any{"type": "string"}, "file": map[string]any{"type": "string", "contentMediaType": "application/octet-stream"}},
		}}
	case linesOf:
		return openapi.Content{typeLines: schema(s.row)}
	case rows:
		return openapi.Content{typeJSON: w.b.Answered(map[string]any{
			"type": "object", "required": []string{s.plural, "next"},
			"properties": map[string]any{
				s.plural: map[string]any{"type": "array", "items": schema(s.row)},
				"next":   map[string]any{"type": []string{"integer", "null"}, "description": "The offset of the next page."},
			},
		})}
	case either:
		one, other := w.content(s.one, answer), w.content(s.other, answer)
		if one[typeJSON] == nil || other[typeJSON] == nil {
			maps.Copy(one, other)
			return one
		}
		return openapi.Content{typeJSON: map[string]any{"anyOf": []any{one[typeJSON], other[typeJSON]}}}
	}

	if answer {
		return openapi.Content{typeJSON: w.b.Answered(schema(shape))}
	}
	return openapi.Content{typeJSON: schema(shape)}
}

// security names the schemes that let into a route.
func security(a access) []string {
	switch a {
	case read, write:
		return []string{openapi.APIKey}
	case reader:
		return []string{openapi.APIKey, openapi.OperatorToken}
	case operator:
		return []string{openapi.OperatorToken}
	case node:
		return []string{openapi.NodeSecret}
	case unstated, free, open:
	}
	return nil
}

// streams reports whether the answer has no end.
func (op operation) streams() bool { return op.gives == any(file{typeStream}) }

// hasTag reports whether the answer to a route has an entity tag, so that whoever has it already is told so.
func hasTag(r *route, op operation) bool {
	return op.tagged || r.access == read && r.method == get && !op.streams()
}

// areaSchema is the schema of an area in the form of GeoJSON.
func areaSchema() map[string]any {
	list := func(of any, least int) map[string]any {
		return map[string]any{"type": "array", "items": of, "minItems": least}
	}
	object := func(typ string, members map[string]any) map[string]any {
		members["type"] = map[string]any{"const": typ}
		return map[string]any{"type": "object", "required": slices.Sorted(maps.Keys(members)), "properties": members}
	}
	const vertices, numbers = 4, 2
	position := list(map[string]any{"type": "number"}, numbers)
	position["maxItems"], position["description"] = numbers+1, "Longitude and latitude in degrees; an altitude does not count."
	rings := list(list(position, vertices), 1)
	polygon := object("Polygon", map[string]any{"coordinates": rings})
	several := object("MultiPolygon", map[string]any{"coordinates": list(rings, 1)})
	return map[string]any{"oneOf": []any{polygon, several, object("Feature", map[string]any{"geometry": map[string]any{"oneOf": []any{polygon, several}}})}}
}

// headersOf are the headers that the answer to a route may have beside those of all answers.
func headersOf(r *route, op operation) map[string]openapi.Header {
	all := maps.Clone(op.headers)
	if all == nil {
		all = map[string]openapi.Header{}
	}
	if hasTag(r, op) {
		all["ETag"] = openapi.Header{About: "The entity tag of the answer."}
	}
	if op.streams() {
		all["X-Accel-Buffering"] = openapi.Header{About: "no: it tells proxies to pass events on as they come."}
	}
	if r.access == write {
		all[headerIdempotencyReplayed] = openapi.Header{About: "true for the answer to an earlier request with the same key."}
	}
	return all
}

// headersOfAll are the headers that every answer may have.
func headersOfAll() map[string]openapi.Header {
	id, number := map[string]any{"type": "string", "format": "uuid"}, map[string]any{"type": "integer", "minimum": 0}
	return map[string]openapi.Header{
		headerRequestID:     {About: "The id of the request, which logs and error records have.", Schema: id},
		headerCorrelationID: {About: "The id that the events of the request keep: that of the request's header, or of the request.", Schema: id},
		headerRateLimit:     {About: "Requests a minute, where rates are limited.", Schema: number},
		headerRateRemaining: {About: "Requests that are left.", Schema: number},
		headerRateScope:     {About: "What is limited: " + scopeKey + " or " + scopeAddress + "."},
		headerRatePolicy:    {About: "All limits, in the form of draft-ietf-httpapi-ratelimit-headers."},
		headerRate:          {About: "What is left of them."},
	}
}

// headersOfProblems are the headers that an error may have beside those of all answers.
func headersOfProblems() map[string]openapi.Header {
	return map[string]openapi.Header{
		"Retry-After":      {About: "After how many seconds to come again, with 429 and 503.", Schema: map[string]any{"type": "integer"}},
		"WWW-Authenticate": {About: "How to say who asks, with 401."},
		"Allow":            {About: "The methods that there are, with 405."},
	}
}

// contentHeaders are those of the content of a file.
func contentHeaders() map[string]openapi.Header {
	return map[string]openapi.Header{
		headerBlobVersion:     {About: "The version of the file.", Schema: map[string]any{"type": "integer"}},
		"Content-Disposition": {About: "attachment, and the name of the file."},
	}
}

// parametersOf are the parameters of a route in the query and in headers.
func parametersOf(r *route, op operation) []openapi.Parameter {
	var all []openapi.Parameter
	for i := range r.takes {
		if p := &r.takes[i]; p.kind != ignored && p.kind != further {
			all = append(all, openapi.Parameter{Name: p.name, In: "query", About: p.about, Schema: p.schema()})
		}
	}
	text := map[string]any{"type": "string"}
	header := func(name, about string) {
		all = append(all, openapi.Parameter{Name: name, In: "header", About: about, Schema: text})
	}
	switch r.access {
	case read:
		if op.streams() {
			header("Last-Event-ID", "The id of the last event that the client has: the stream goes on after it.")
			break
		}
		if hasTag(r, op) {
			header("If-None-Match", "Entity tags that the client has.")
		}
	case write:
		if r.pattern != transactionPath {
			header("If-Match", "Entity tags, of which the state of the aggregate must have one.")
		}
		header(headerIdempotencyKey, "1 to 255 printable ASCII characters that make the write safe to repeat.")
		header(headerCorrelationID, "A UUID that the events keep.")
	case unstated, free, open, reader, operator, node:
	}
	return all
}

// schema is the JSON Schema of a parameter's values.
func (p *parameter) schema() map[string]any {
	switch p.kind {
	case whole:
		s := map[string]any{"type": "integer", "minimum": p.least}
		if p.most != 0 && p.most != math.MaxInt64 {
			s["maximum"] = p.most
		}
		return s
	case moment:
		return map[string]any{"type": "string", "examples": []string{"2024-01-15T10:00:00Z", "1705312800"}}
	case flag:
		return map[string]any{"type": "boolean"}
	case choice:
		return map[string]any{"type": "string", "enum": p.choices}
	case day:
		return map[string]any{"type": "string", "examples": []string{"2026-11-21", "2026-11-21T08:00:00Z"}}
	case position:
		return map[string]any{"type": "string", "pattern": `^[0-9]{13}-[0-9]+$`, "examples": []string{"1706789012345-0"}}
	case positionOrZero:
		return map[string]any{"type": "string", "pattern": `^(0|[0-9]{13}-[0-9]+)$`, "examples": []string{"0", "1706789012345-0"}}
	case agent:
		return map[string]any{"type": "string", "pattern": "^[^:]+:.+$", "examples": []string{"user:global"}}
	case texts:
		return map[string]any{"type": "string", "minLength": 1}
	case duration:
		return map[string]any{"type": "string", "examples": []string{"1s", "30s"}}
	case latitude:
		return map[string]any{"type": "number", "minimum": -90, "maximum": 90}
	case longitude:
		return map[string]any{"type": "number", "minimum": -180, "maximum": 180}
	case metres:
		return map[string]any{"type": "number", "exclusiveMinimum": 0}
	case text, ignored, further:
	}
	return map[string]any{"type": "string"}
}
