package httpapi

import (
	"cmp"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/derived/projection"
	"j17/internal/edge/openapi"
	"j17/internal/lang/spec"
	"j17/internal/lang/typegen"
)

// openAPIPath is where each host describes itself.
const openAPIPath = "/_openapi.json"

// maxOwnEvents is how many event types a spec may have for each to have paths of its own in the document. The event
// types of a larger spec are described by the general routes of their types, and their schemas are included all the
// same.
const maxOwnEvents = 2000

// Document is which of the documents there are.
type Document uint8

// The documents: of the control host, of the hosts of an environment without and with their administration only, and of
// the internal listener.
const (
	ControlDocument Document = iota
	InstanceDocument
	AdminDocument
	InternalDocument
)

// OpenAPI returns the OpenAPI document of a host that is reached at a URL; that of an environment has the types of its
// spec, which is nil for none. Its size and cost grow with the spec's text and with the number of paths, which is
// bounded.
func OpenAPI(d Document, version, server string, c *spec.Compiled) ([]byte, error) {
	of := &projection.Declared{Spec: c}
	if c != nil {
		of.Projections = c.Projections
	}
	raw, err := (&API{Options: Options{Version: version}}).describe(d, of)
	return append(raw, openapi.At(server)...), err
}

// describe makes a document of the routes that this server has, and of what an environment has; without a spec, of the
// routes alone. The end of the document is missing: see openapi.At.
func (a *API) describe(d Document, of *projection.Declared) ([]byte, error) {
	info := openapi.Info{
		Version: cmp.Or(a.Version, "dev"), Statuses: StatusOf, Title: "j17",
		About: "Errors are in the form of RFC 9457.",
	}
	info.Headers, info.Problems = headersOfAll(), headersOfProblems()
	var sites site
	switch d {
	case ControlDocument:
		sites, info.Title = controlSite, "j17: the control plane"
	case InstanceDocument:
		sites, info.Title = dataSite|viewSite, "j17: an environment of an instance"
	case AdminDocument:
		sites, info.Title = adminSite, "j17: the administration of an environment"
	case InternalDocument:
		sites, info.Title = internalSite, "j17: the internal listener"
	}
	b := openapi.New(info)
	w := &describer{b: b}
	if d == InstanceDocument && of.Spec != nil {
		w.spec, w.projections = of.Spec, of.Projections
		w.schemas()
	}

	all := a.routes()
	for i := range all {
		if all[i].sites&sites != 0 && !strings.HasPrefix(all[i].pattern, screenPath) {
			// the dashboard's own files are no API
			w.add(&all[i])
		}
	}
	w.webhooks()
	return b.JSON()
}

// describer adds rows of the table of routes to a document.
type describer struct {
	b    *openapi.Builder
	spec *spec.Compiled
	// projections are those of the spec, and those that were posted beside it.
	projections map[string]*spec.Projection
}

// pathOf is the path of a pattern in a document.
func pathOf(pattern string) string {
	return strings.NewReplacer("{$}", "", "{instance_}", "{instance}", "{env_}", "{environment}").Replace(pattern)
}

// add adds a row, for a row of the aggregates of a spec once for each type, and once for each event type.
func (w *describer) add(r *route) {
	// A row of projections is added for each of them.
	if w.spec != nil && r.sites&viewSite != 0 && len(w.projections) <= maxOwnViews {
		w.views(r)
		return
	}

	// A row that is not about aggregates, or is the same for all of them, is added once.
	path := pathOf(r.pattern)
	if w.spec == nil || r.sites&dataSite == 0 || r.alike || !strings.HasPrefix(path, "/{type}") {
		w.b.Add(w.describe(r, nil), "")
		return
	}

	// Otherwise it is added for each type, with the type's own events if they are not too many.
	events := 0
	for _, t := range w.spec.Types {
		events += len(t.Events)
	}
	for _, name := range slices.Sorted(maps.Keys(w.spec.Types)) {
		if r.places != "" && !w.spec.Types[name].HasPlaces(r.places) {
			continue
		}
		of := *r
		if list, ok := r.gives.(either); ok && reflect.TypeOf(list.other) == reflect.TypeFor[wire.Singleton]() {
			of.gives = list.one // a type's name is never a singleton's
		}
		described := w.describe(&of, w.state(name))
		described.ID, described.Path, described.Tag = r.id+"."+name, strings.Replace(path, "{type}", name, 1), name
		if !strings.HasSuffix(path, "/{event}") || events > maxOwnEvents {
			w.b.Add(described, r.id)
			continue
		}
		for _, event := range slices.Sorted(maps.Keys(w.spec.Types[name].Events)) {
			if e := w.spec.Types[name].Events[event]; e.System || e.Retired && e.As == nil {
				continue // nobody writes it
			}
			one := described
			one.ID, one.Path = described.ID+"."+event, strings.Replace(described.Path, "{event}", event, 1)
			one.Body = &openapi.Content{typeJSON: map[string]any{
				"type": "object", "additionalProperties": false, "required": []string{"data", "metadata"},
				"properties": map[string]any{
					"data":       reference(typegen.DataComponent(name, event)),
					"metadata":   w.b.Schema(reflect.TypeFor[wire.EventMetadata]()),
					"conditions": w.b.Schema(reflect.TypeFor[[]wire.Condition]()),
				},
			}}
			w.b.Add(one, r.id)
		}
	}
}

// describe returns what a row says. The data in its answers have a schema of their own, unless that is nil.
func (w *describer) describe(r *route, of *data) openapi.Operation {
	described := openapi.Operation{
		ID: r.id, Method: r.method, Path: pathOf(r.pattern), Tag: tagOf(r.pattern),
		About: r.about, Security: security(r.access), Parameters: parametersOf(r), Optional: r.optional,
	}
	ownEvent := w.spec != nil && strings.HasSuffix(r.pattern, "/{event}")
	if r.body != nil && !ownEvent {
		described.Body = new(w.content(r.body, false, nil))
	}
	headers := headersOf(r)
	answer := func(status int, about string, content openapi.Content) {
		described.Answers = append(described.Answers, openapi.Answer{
			Status: status, About: about, Content: content, Headers: headers,
		})
	}
	if r.gives != nil || r.accepted == nil {
		status, about := http.StatusOK, "OK"
		switch {
		case r.anew != nil:
			about = "OK; nothing is new."
		case r.made:
			status, about = http.StatusCreated, "Created"
		}
		if r.tried != nil {
			described.Trial = w.b.Schema(reflect.TypeOf(r.tried))
			about = "Created. With dry_run=true the status is 200 and the body, beside \"ok\", a " + reflect.TypeOf(r.tried).Name() + "; nothing is written."
		}
		answer(status, about, w.content(r.gives, true, of))
	}
	if r.anew != nil {
		answer(http.StatusCreated, "Created", w.content(r.anew, true, nil))
	}
	if r.accepted != nil {
		answer(http.StatusAccepted, "Accepted: it is done in the background.", w.content(r.accepted, true, nil))
	}
	if r.hasTag() {
		answer(http.StatusNotModified, "What the client has is current.", nil)
	}
	return described
}

// tagOf returns the group of a pattern that is about no aggregate type: the first part of its path that names a
// subject.
func tagOf(pattern string) string {
	for _, mount := range []string{adminPrefix, "/api/instances/{instance_}/ops/{env_}/", "/internal/instances/{instance_}/{env_}/", "/internal/control/", "/api/"} {
		if rest, ok := strings.CutPrefix(pattern, mount); ok {
			first, _, _ := strings.Cut(rest, "/")
			return strings.Trim(first, "{}")
		}
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(pattern, "/"), "/")
	switch {
	case strings.HasPrefix(first, "{type}"):
		return "aggregates"
	case strings.HasPrefix(first, "_") && first != openAPIPath[1:]:
		return first
	}
	return "server"
}

// schemas adds the schemas of what the spec declares.
func (w *describer) schemas() {
	root, err := value.Parse(w.spec.Source)
	if err != nil {
		return // it has been compiled
	}
	var views []value.Member
	if len(w.projections) <= maxOwnViews {
		for _, name := range slices.Sorted(maps.Keys(w.projections)) {
			views = append(views, value.Member{Key: name, Value: w.projections[name].Definition})
		}
	}
	for _, c := range typegen.Components(root, value.ObjectValue(views...)) {
		w.b.Define(c.Name, json.RawMessage(c.Schema))
	}
	w.b.Describe(reflect.TypeFor[wire.Agent](), w.b.Define("Agent", agentSchema(w.spec.AgentTypes)))
	if len(w.spec.TargetTypes) > 0 {
		w.b.Describe(reflect.TypeFor[wire.Target](), w.b.Define("Target", agentSchema(w.spec.TargetTypes)))
	}
	for _, name := range slices.Sorted(maps.Keys(w.spec.Types)) {
		w.b.Tag(name, "Aggregates of the type "+name+".")
	}
}

// agentSchema is the schema of an actor or a target of one of the types.
func agentSchema(types spec.NameSet) any {
	return map[string]any{
		"type": "object", "required": []string{"type", "id"},
		"properties": map[string]any{
			"type": map[string]any{"type": "string", "enum": types.Sorted()}, "id": map[string]any{"type": "string"},
		},
	}
}

// data is the schema of the data in an answer, and the name of what the data belong to.
type data struct {
	of     string
	schema any
}

// state is the schema of the states of an aggregate type.
func (*describer) state(name string) *data {
	return &data{name, reference(typegen.StateComponent(name))}
}

func reference(schema string) any { return map[string]any{"$ref": "#/components/schemas/" + schema} }

// content describes a shape as a body: of an answer with "ok" before its members. Data that it has are of a schema, nil
// for any.
func (w *describer) content(shape any, answer bool, of *data) openapi.Content {
	schema := func(s any) any {
		if s == nil {
			return nil
		}
		return w.shape(reflect.TypeOf(s), of)
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
			"properties": map[string]any{
				"name": map[string]any{"type": "string"},
				"file": map[string]any{"type": "string", "contentMediaType": "application/octet-stream"},
			},
		}}
	case linesOf:
		return openapi.Content{typeLines: schema(s.row)}
	case rows:
		return openapi.Content{typeJSON: w.b.Answered(map[string]any{
			"type": "object", "required": []string{s.plural, "next"},
			"properties": map[string]any{
				s.plural: map[string]any{"type": "array", "items": schema(s.row)},
				"next": map[string]any{
					"type": []string{"integer", "null"}, "description": "The offset of the next page.",
				},
			},
		})}
	case either:
		one, other := w.content(s.one, answer, of), w.content(s.other, answer, of)
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

// shape is the schema of a type that has data, or rows that do.
func (w *describer) shape(t reflect.Type, of *data) any {
	if of == nil {
		return w.b.Schema(t)
	}
	row, ok := map[reflect.Type]reflect.Type{
		reflect.TypeFor[wire.Rows]():       reflect.TypeFor[wire.Row](),
		reflect.TypeFor[wire.Nearby]():     reflect.TypeFor[wire.NearbyRow](),
		reflect.TypeFor[wire.Within]():     reflect.TypeFor[wire.WithinRow](),
		reflect.TypeFor[wire.Containing](): reflect.TypeFor[wire.ContainingRow](),
	}[t]
	switch {
	case ok:
		of := w.b.Define(of.of+"._"+strings.ToLower(row.Name()), w.b.Typed(row, map[string]any{"data": of.schema}))
		return w.b.Typed(t, map[string]any{"rows": map[string]any{"type": "array", "items": of}})
	case t == reflect.TypeFor[wire.State](), t == reflect.TypeFor[wire.Projected]():
		return w.b.Typed(t, map[string]any{"data": of.schema})
	}
	return w.b.Schema(t)
}

// security names the schemes that a route accepts.
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
func (op *operation) streams() bool { return op.gives == any(file{typeStream}) }

// hasTag reports whether the answer has an entity tag, so that a client that already has the content gets a 304.
func (r *route) hasTag() bool {
	return r.tagged || r.access == read && r.method == get && !r.streams()
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
	return map[string]any{"oneOf": []any{polygon, several, object("Feature", map[string]any{
		"geometry": map[string]any{"oneOf": []any{polygon, several}},
	})}}
}

// headersOf are the headers that the answer to a route may have beside those of all answers.
func headersOf(r *route) map[string]openapi.Header {
	all := maps.Clone(r.headers)
	if all == nil {
		all = map[string]openapi.Header{}
	}
	if r.hasTag() {
		all["ETag"] = openapi.Header{About: "The entity tag of the answer."}
	}
	if r.streams() {
		all["X-Accel-Buffering"] = openapi.Header{About: "The word no, which tells proxies to pass events on immediately."}
	}
	if r.access == write {
		all[headerIdempotencyReplayed] = openapi.Header{About: "true where this is the answer to an earlier request with the same key."}
	}
	return all
}

// headersOfAll are the headers that every answer may have.
func headersOfAll() map[string]openapi.Header {
	id, number := map[string]any{"type": "string", "format": "uuid"}, map[string]any{"type": "integer", "minimum": 0}
	return map[string]openapi.Header{
		headerRequestID:     {About: "The id of the request, as in logs and error records.", Schema: id},
		headerCorrelationID: {About: "The correlation id that is stored with the events: that of the request's header, or else the id of the request.", Schema: id},
		headerRateLimit:     {About: "Requests per minute, where rates are limited.", Schema: number},
		headerRateRemaining: {About: "Requests that remain.", Schema: number},
		headerRateScope:     {About: "The scope of the limit: " + scopeKey + " or " + scopeAddress + "."},
		headerRatePolicy:    {About: "All limits, in the form of draft-ietf-httpapi-ratelimit-headers."},
		headerRate:          {About: "What remains of these limits."},
	}
}

// headersOfProblems are the headers that an error may have beside those of all answers.
func headersOfProblems() map[string]openapi.Header {
	return map[string]openapi.Header{
		"Retry-After":      {About: "Seconds to wait before the next attempt, with 429 and 503.", Schema: map[string]any{"type": "integer"}},
		"WWW-Authenticate": {About: "How to authenticate, with 401."},
		"Allow":            {About: "The methods that the path supports, with 405."},
	}
}

// parametersOf are the parameters of a route in the query and in headers.
func parametersOf(r *route) []openapi.Parameter {
	var all []openapi.Parameter
	for i := range r.query {
		if p := &r.query[i]; p.kind != ignored && p.kind != further {
			all = append(all, openapi.Parameter{Name: p.name, In: "query", About: p.about, Schema: p.schema()})
		}
	}
	text := map[string]any{"type": "string"}
	header := func(name, about string) {
		all = append(all, openapi.Parameter{Name: name, In: "header", About: about, Schema: text})
	}
	switch r.access {
	case read:
		if r.streams() {
			header("Last-Event-ID", "The id of the last event that the client has: the stream goes on after it.")
			break
		}
		if r.hasTag() {
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
		return map[string]any{
			"type": "string", "pattern": `^[0-9]{13}-[0-9]+$`, "examples": []string{"1706789012345-0"},
		}
	case positionOrZero:
		return map[string]any{
			"type": "string", "pattern": `^(0|[0-9]{13}-[0-9]+)$`, "examples": []string{"0", "1706789012345-0"},
		}
	case positionOrNow:
		return map[string]any{
			"type": "string", "pattern": `^(now|[0-9]{13}-[0-9]+)$`, "examples": []string{"now", "1706789012345-0"},
		}
	case agent:
		return map[string]any{"type": "string", "pattern": "^[^:]+:.+$", "examples": []string{"user:global"}}
	case uuidText:
		return map[string]any{"type": "string", "format": "uuid"}
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
