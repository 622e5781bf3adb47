// Package openapi makes OpenAPI 3.1 documents of operations and of the Go types that requests and answers have. It
// knows no routes: callers hand them over.
package openapi

import (
	"cmp"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"j17"
)

// Info is what a document says about itself.
type Info struct {
	Title, Version, About string
	// Statuses returns the HTTP status of each error code.
	Statuses func(j17.Code) int
	// Headers are those that every answer may have, and Problems those that errors may have beside them, by name.
	Headers, Problems map[string]Header
}

// Header is one of an answer.
type Header struct {
	About string
	// Schema is nil for a text.
	Schema any
}

// The security schemes.
const (
	APIKey        = "apiKey"
	OperatorToken = "operatorToken"
	NodeSecret    = "nodeSecret"
)

// Operation is one method of one path.
type Operation struct {
	ID, Method, Path, About string
	// Tag is the group that tools show the operation in.
	Tag string
	// Security lists the schemes of which one is required, none for what anybody may do.
	Security []string
	// Parameters are those of the query and of headers; those of the path are found in it.
	Parameters []Parameter
	// Body is nil for a request without one.
	Body *Content
	// Optional reports that the body may be left out.
	Optional bool
	Answers  []Answer
	// Trial is the schema of the answer to a dry run in place of that of a success, nil where there are no dry runs. In
	// a document it is not an answer of its own, or each success would be one of two things.
	Trial any
}

// Trial is the member of operations that has the schema of what is answered where nothing is to be written.
const Trial = "x-j17-dry-run"

// Webhook is a request that the server makes.
type Webhook struct {
	Name, About, Tag string
	Body             Content
	// Parameters are the headers of the request.
	Parameters []Parameter
}

// Parameter is one of the query or a header.
type Parameter struct {
	Name, In, About string
	Schema          any
	// Required reports that requests without it are refused.
	Required bool
}

// Content is what a body is made of: by media type a schema, as Schema returns it or as it shall stand in the document.
type Content map[string]any

// Answer is one that is no error.
type Answer struct {
	Status  int
	About   string
	Content Content
	// Headers are those that the answer may have beside those of all answers, by name.
	Headers map[string]Header
}

type object = map[string]any

// Builder puts a document together.
type Builder struct {
	info    Info
	paths   map[string]object
	schemas object
	// answers are shared: an answer of one operation that is described before is the same component.
	answers object
	bodies  object
	params  object
	schemes map[string]bool
	// tags have what is said of each group, webhooks what the server sends.
	tags     map[string]string
	webhooks object
	// instead has the schemas of types that a document describes in its own way.
	instead map[reflect.Type]any
}

// New returns a builder of an empty document.
func New(info Info) *Builder {
	return &Builder{
		info: info, paths: map[string]object{}, schemas: object{}, answers: object{}, bodies: object{},
		params: object{}, schemes: map[string]bool{},
		tags: map[string]string{}, webhooks: object{}, instead: map[reflect.Type]any{},
	}
}

// isComponentName reports whether a component may be called so.
func isComponentName(name string) bool {
	return strings.Trim(name, "-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
}

// Tag describes a group of operations. A group without a description is called by its name.
func (b *Builder) Tag(name, about string) { b.tags[name] = about }

// Add adds an operation. The components that it is made of are named after like, the id of operations that are alike,
// as far as they are the same; "" for its own.
func (b *Builder) Add(op Operation, like string) {
	like = cmp.Or(like, op.ID)
	described := object{"operationId": op.ID, "summary": op.About}
	b.group(described, op.Tag)
	if params := b.parameters(&op, like); params != nil {
		described["parameters"] = params
	}
	if op.Body != nil {
		body := object{"required": !op.Optional, "content": media(*op.Body)}
		described["requestBody"] = shared(b.bodies, "requestBodies", like, op.ID, body)
	}

	// Answers, and the two kinds of errors: of the request, and of the server.
	answers := object{"4XX": ref("responses", "Problem"), "5XX": ref("responses", "Problem")}
	for _, a := range op.Answers {
		status := strconv.Itoa(a.Status)
		answer := object{"description": a.About, "headers": b.headers(a.Headers)}
		if a.Content != nil {
			answer["content"] = media(a.Content)
		}
		answers[status] = shared(b.answers, "responses", like+"."+status, op.ID+"."+status, answer)
	}
	described["responses"] = answers
	if op.Trial != nil {
		described[Trial] = op.Trial
	}

	security := []any{}
	for _, s := range op.Security {
		b.schemes[s] = true
		security = append(security, object{s: []string{}})
	}
	described["security"] = security
	if b.paths[op.Path] == nil {
		b.paths[op.Path] = object{}
	}
	b.paths[op.Path][strings.ToLower(op.Method)] = described
}

// group puts an operation into a group.
func (b *Builder) group(described object, tag string) {
	if tag == "" {
		return
	}
	described["tags"] = []string{tag}
	if b.tags[tag] == "" {
		b.tags[tag] = tag
	}
}

// parameters returns those of an operation: components, so that operations which are alike say them once.
func (b *Builder) parameters(op *Operation, like string) (params []any) {
	for _, name := range pathNames(op.Path) {
		own := object{"name": name, "in": "path", "required": true, "schema": object{"type": "string"}}
		params = append(params, shared(b.params, "parameters", "path."+name, "path."+name, own))
	}
	for i := range op.Parameters {
		p := &op.Parameters[i]
		key := like + "." + p.Name
		if p.In == "header" {
			key = "header." + p.Name
		}
		params = append(params, shared(b.params, "parameters", key, "", parameter(p)))
	}
	return params
}

func parameter(p *Parameter) object {
	own := object{"name": p.Name, "in": p.In, "description": p.About, "schema": p.Schema}
	if p.Required {
		own["required"] = true
	}
	return own
}

// shared returns a reference to the component with a name that equals thing: an existing one, or one made of it. Where
// the name is taken by a different component, the second name is used, and where that cannot be used either,
// thing itself stands in place of a reference.
func shared(components object, kind, name, other string, thing object) any {
	for _, name := range []string{name, other} {
		if name == "" || !isComponentName(name) {
			continue
		}
		if components[name] == nil {
			components[name] = thing
		}
		if reflect.DeepEqual(components[name], any(thing)) {
			return ref(kind, name)
		}
	}
	return thing
}

// Send adds a request that the server makes.
func (b *Builder) Send(w *Webhook) {
	described := object{
		"operationId": "webhook." + w.Name, "summary": w.About,
		"requestBody": object{"required": true, "content": media(w.Body)}, "security": []any{},
		"responses": object{
			"2XX":     object{"description": "The message was taken."},
			"default": object{"description": "The message will be sent again."},
		},
	}
	b.group(described, w.Tag)
	var params []any
	for i := range w.Parameters {
		params = append(params, parameter(&w.Parameters[i]))
	}
	described["parameters"] = params
	b.webhooks[w.Name] = object{"post": described}
}

// Define adds a schema under a name and returns the reference to it.
func (b *Builder) Define(name string, schema any) any {
	b.schemas[name] = schema
	return ref("schemas", name)
}

// Describe says that a document has a schema of its own for a type.
func (b *Builder) Describe(t reflect.Type, schema any) { b.instead[t] = schema }

// JSON returns the document without its end, which At returns: the same document is served at several URLs.
func (b *Builder) JSON() ([]byte, error) {
	// What every operation may answer with.
	problem := b.problem()
	b.answers["Problem"] = object{
		"description": "What is wrong, in the form of RFC 9457.",
		"headers":     b.headers(b.info.Problems),
		"content":     object{"application/problem+json": object{"schema": problem}},
	}

	// How one authenticates, as far as there are operations for it.
	schemes := object{}
	for name := range b.schemes {
		switch name {
		case APIKey:
			schemes[name] = object{"type": "http", "scheme": "bearer", "description": "An API key of the environment."}
		case OperatorToken:
			schemes[name] = object{"type": "http", "scheme": "bearer", "bearerFormat": "JWT", "description": "The token of POST /api/login on the control host."}
		case NodeSecret:
			schemes[name] = object{"type": "apiKey", "in": "header", "name": "X-Node-Secret", "description": "The secret that the nodes of a server share."}
		}
	}

	var tags []any
	for _, name := range slices.Sorted(maps.Keys(b.tags)) {
		tags = append(tags, object{"name": name, "description": b.tags[name]})
	}
	document := object{
		"openapi": "3.1.0",
		"info": object{
			"title": b.info.Title, "version": b.info.Version, "description": b.info.About,
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"paths": b.paths,
		"tags":  tags,
		"components": object{
			"schemas": b.schemas, "responses": b.answers, "requestBodies": b.bodies, "parameters": b.params,
			"securitySchemes": schemes,
			"headers":         described(b.info.Headers),
		},
	}
	if len(b.webhooks) > 0 {
		document["webhooks"] = b.webhooks
	}
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return raw[:len(raw)-len("}")], nil
}

// At returns the end of a document, with the URL that its paths are below.
func At(server string) []byte {
	raw, err := json.Marshal([]object{{"url": server}})
	if err != nil {
		return nil // it is a text
	}
	return append(append([]byte(`,"servers":`), raw...), '}')
}

// problem is the schema of errors, with all codes and what their statuses are.
func (b *Builder) problem() any {
	byStatus := map[int][]string{}
	var codes []string
	for _, code := range j17.Codes() {
		codes = append(codes, string(code))
		status := b.info.Statuses(code)
		byStatus[status] = append(byStatus[status], string(code))
	}
	var about strings.Builder
	for _, status := range slices.Sorted(maps.Keys(byStatus)) {
		about.WriteString(strconv.Itoa(status) + ": " + strings.Join(byStatus[status], ", ") + ". ")
	}
	b.schemas["Code"] = object{"type": "string", "enum": codes, "description": "What is wrong, for programs. By status: " + strings.TrimSpace(about.String())}
	return b.Schema(reflect.TypeFor[problemBody]())
}

// headers are those of all answers, and some more.
func (b *Builder) headers(more map[string]Header) object {
	all := described(more)
	for name := range b.info.Headers {
		all[name] = ref("headers", name)
	}
	return all
}

// described are headers as they stand in a document.
func described(headers map[string]Header) object {
	all := object{}
	for name, h := range headers {
		schema := h.Schema
		if schema == nil {
			schema = object{"type": "string"}
		}
		all[name] = object{"description": h.About, "schema": schema}
	}
	return all
}

func ref(kind, name string) any { return object{"$ref": "#/components/" + kind + "/" + name} }

func media(c Content) object {
	all := object{}
	for name, schema := range c {
		all[name] = object{"schema": schema}
	}
	return all
}

// pathNames returns the names of the wildcards of a path.
func pathNames(path string) []string {
	var names []string
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, "{") {
			names = append(names, strings.Trim(part, "{}"))
		}
	}
	return names
}
