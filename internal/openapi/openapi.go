// Package openapi makes OpenAPI 3.1 documents of operations and of the Go types that requests and answers have. It knows no
// routes: who has them hands them over.
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
	// Server is the URL that paths are below, which may have variables in braces.
	Server string
	// Variables are what the variables of Server are without a choice.
	Variables map[string]string
	// Statuses tells the HTTP status of each error code.
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
	// Security lists the schemes of which one is asked for, none for what everybody may do.
	Security []string
	// Parameters are those of the query and of headers; those of the path are found in it.
	Parameters []Parameter
	// Body is nil for a request without one.
	Body *Content
	// Optional tells that the body may be left out, OwnBody that it is another one than that of operations that are alike.
	Optional, OwnBody bool
	Answers           []Answer
}

// Parameter is one of the query or a header.
type Parameter struct {
	Name, In, About string
	Schema          any
	// Required tells that there is no answer without it.
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
}

// New returns a builder of an empty document.
func New(info Info) *Builder {
	return &Builder{
		info: info, paths: map[string]object{}, schemas: object{}, answers: object{}, bodies: object{}, params: object{}, schemes: map[string]bool{},
	}
}

// isComponentName reports whether a component may be called so.
func isComponentName(name string) bool {
	return strings.Trim(name, "-._0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
}

// Add adds an operation. The components that it is made of are named after like, the id of an operation that has the same
// parameters and answers; "" for its own.
func (b *Builder) Add(op Operation, like string) {
	like = cmp.Or(like, op.ID)
	described := object{"operationId": op.ID, "summary": op.About}

	// Parameters: components, so that operations which are alike say them once.
	var params []any
	for _, name := range pathNames(op.Path) {
		key := "path." + name
		if b.params[key] == nil {
			b.params[key] = object{"name": name, "in": "path", "required": true, "schema": object{"type": "string"}}
		}
		params = append(params, ref("parameters", key))
	}
	for i := range op.Parameters {
		p := &op.Parameters[i]
		key := like + "." + p.Name
		if p.In == "header" {
			key = "header." + p.Name
		}
		own := object{"name": p.Name, "in": p.In, "description": p.About, "schema": p.Schema}
		if p.Required {
			own["required"] = true
		}
		if b.params[key] == nil && isComponentName(key) {
			b.params[key] = own
		}
		if !reflect.DeepEqual(b.params[key], any(own)) {
			params = append(params, own) // nothing can be called so, or another operation's parameter is
			continue
		}
		params = append(params, ref("parameters", key))
	}
	if params != nil {
		described["parameters"] = params
	}

	if op.Body != nil {
		key := like
		if op.OwnBody {
			key = op.ID
		}
		if b.bodies[key] == nil {
			b.bodies[key] = object{"required": !op.Optional, "content": media(*op.Body)}
		}
		described["requestBody"] = ref("requestBodies", key)
	}

	// Answers, and the two kinds of errors: of the request, and of the server.
	answers := object{"4XX": ref("responses", "Problem"), "5XX": ref("responses", "Problem")}
	for _, a := range op.Answers {
		key := like + "." + strconv.Itoa(a.Status)
		if b.answers[key] == nil {
			answer := object{"description": a.About, "headers": b.headers(a.Headers)}
			if a.Content != nil {
				answer["content"] = media(a.Content)
			}
			b.answers[key] = answer
		}
		answers[strconv.Itoa(a.Status)] = ref("responses", key)
	}
	described["responses"] = answers

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

// Define adds a schema under a name and returns the reference to it.
func (b *Builder) Define(name string, schema any) any {
	b.schemas[name] = schema
	return ref("schemas", name)
}

// JSON returns the document.
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

	server := object{"url": b.info.Server}
	if len(b.info.Variables) > 0 {
		variables := object{}
		for name, v := range b.info.Variables {
			variables[name] = object{"default": v}
		}
		server["variables"] = variables
	}

	return json.Marshal(object{
		"openapi": "3.1.0",
		"info":    object{"title": b.info.Title, "version": b.info.Version, "description": b.info.About, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers": []any{server},
		"paths":   b.paths,
		"components": object{
			"schemas": b.schemas, "responses": b.answers, "requestBodies": b.bodies, "parameters": b.params, "securitySchemes": schemes,
			"headers": described(b.info.Headers),
		},
	})
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
