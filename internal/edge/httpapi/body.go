package httpapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/command"
)

// chunkSize is how much of a body is read at once.
const chunkSize = 8 << 10

// readBody returns a JSON request's body, as the string that parsed values will share. The content type is checked
// before a byte is read.
func (c *call) readBody(w http.ResponseWriter, limit int64) (string, error) {
	return c.readBodyOf(w, limit, typeJSON)
}

// readBodyOf is readBody for a body that may be of several types of content, all of which are JSON.
func (c *call) readBodyOf(w http.ResponseWriter, limit int64, types ...string) (string, error) {
	r := c.request
	if err := jsonContent(r.Header, types); err != nil {
		return "", err
	}
	if r.ContentLength > limit {
		return "", tooLarge(limit)
	}
	body, err := c.text(w, limit)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return "", tooLarge(limit)
	}
	if _, ok := errors.AsType[*j17.Error](err); ok {
		return "", err
	}
	switch {
	case err != nil:
		return "", j17.Errorf(j17.CodeInvalidRequest, "The request body could not be read to its end").Because(err)
	case body == "":
		return "", j17.Errorf(j17.CodeInvalidJSON, "The request body is empty; it must be a JSON object")
	}
	return body, nil
}

// growth is the factor by which the memory for a body grows when it is full.
const growth = 4

// text reads the body. Memory is allocated for what has arrived, not for what was announced; room for the whole body is
// taken from the pool once more than a little has arrived.
func (c *call) text(w http.ResponseWriter, limit int64) (string, error) {
	r := c.request
	if whole, ok := r.Body.(interface{ Text() string }); ok {
		return whole.Text(), nil // it has come, and readBodyOf has looked at its length
	}
	from, size := r.Body, r.ContentLength
	if size < 0 {
		from, size = http.MaxBytesReader(w, from, limit), limit
	}
	chunk, _ := c.api.chunks.Get().(*[chunkSize]byte)
	defer c.api.chunks.Put(chunk)

	// Most are small, and say so.
	if announced := r.ContentLength; 0 <= announced && announced <= chunkSize {
		_, err := io.ReadFull(from, chunk[:announced])
		return string(chunk[:announced]), err
	}

	body := new(strings.Builder)
	body.Grow(int(min(max(r.ContentLength, 0), unaccounted)))
	for {
		n, err := from.Read(chunk[:])
		if body.Len() <= unaccounted && body.Len()+n > unaccounted {
			if err := c.take(c.api.resources.bodies, size, "such a body"); err != nil {
				return "", err
			}
		}
		if need := body.Len() + n; need > body.Cap() {
			larger := new(strings.Builder)
			larger.Grow(max(need, int(min(size, int64(growth*need))))) // not more than there will be
			larger.WriteString(body.String())
			body = larger
		}
		body.Write(chunk[:n])
		switch {
		case errors.Is(err, io.EOF):
			return body.String(), nil
		case err != nil:
			return "", err
		}
	}
}

func tooLarge(limit int64) error {
	return j17.Errorf(j17.CodePayloadTooLarge, "The request body is larger than %d bytes", limit)
}

func jsonContent(h http.Header, types []string) error {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return j17.Errorf(j17.CodeInvalidContentType, "Request bodies must not be compressed; send them without Content-Encoding")
	}
	ct := h.Get("Content-Type")
	if ct == typeJSON {
		return nil
	}
	media, params, err := mime.ParseMediaType(ct)
	if err != nil || !slices.Contains(types, media) {
		return j17.Errorf(j17.CodeInvalidContentType, "The Content-Type must be %s", strings.Join(types, " or "))
	}
	if cs := params["charset"]; cs != "" && !strings.EqualFold(cs, "utf-8") && !strings.EqualFold(cs, "utf8") {
		return j17.Errorf(j17.CodeInvalidContentType, "JSON must be sent as UTF-8: leave out the charset, or write charset=utf-8")
	}
	return nil
}

type syntaxDetails struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

func invalidJSON(err error) error {
	e := j17.Errorf(j17.CodeInvalidJSON, "The request body is not valid JSON")
	if s, ok := errors.AsType[*value.SyntaxError](err); ok {
		e.Message, e.Plain = e.Message+": "+s.Error(), false
		e.Details = syntaxDetails{Line: s.Line, Column: s.Column}
	}
	return e
}

// maxSmallBody bounds the bodies of requests that carry no events.
const maxSmallBody = 16 << 10

// decode reads a small JSON object into a shape. Members that the shape does not have are refused, and required ones
// must be there.
func (c *call) decode(w http.ResponseWriter, into any) error {
	_, err := c.decodeGiven(w, into)
	return err
}

// decodeGiven is decode for callers that need to know which members were given: it returns the object as well.
func (c *call) decodeGiven(w http.ResponseWriter, into any) (parsed value.Value, err error) {
	raw, err := c.readBody(w, maxSmallBody)
	if err != nil {
		return parsed, err
	}
	parsed, err = value.ParseString(raw)
	if err != nil {
		return parsed, invalidJSON(err)
	}
	if parsed.Kind() != value.Object {
		return parsed, j17.Errorf(j17.CodeInvalidField, "The request body must be a JSON object")
	}

	// Names, which encoding/json takes in any case.
	shape := reflect.TypeOf(into).Elem()
	known := members(shape)
	for _, m := range parsed.Members() {
		if !slices.Contains(known, m.Key) {
			return parsed, command.UnknownField("", m.Key, known)
		}
	}

	// Types.
	if err := json.Unmarshal([]byte(raw), into); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			return parsed, j17.Errorf(
				j17.CodeInvalidField, "'%s' must be %s, not %s", wrong.Field, wantedKind(wrong.Type),
				givenKind(wrong.Value),
			).At(wrong.Field)
		}
		return parsed, j17.Errorf(j17.CodeInvalidField, "The request body has not the form that is asked for")
	}

	// What is missing.
	for _, f := range reflect.VisibleFields(shape) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if options != "" || parsed.Get(name).Kind() > value.Null {
			continue
		}
		must := cmp.Or(f.Tag.Get("must"), "given as a string")
		if f.Type.Kind() == reflect.Bool {
			must = "true or false"
		}
		return parsed, j17.Errorf(j17.CodeMissingField, "'%s' must be %s", name, must).At(name)
	}
	return parsed, nil
}

// decodeChange is decode for settings that are to change. None of them can be removed, so null is not a value of any.
func (c *call) decodeChange(w http.ResponseWriter, into any) error {
	given, err := c.decodeGiven(w, into)
	if err != nil {
		return err
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(into).Elem()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if given.Get(name).Kind() == value.Null {
			return j17.Errorf(j17.CodeInvalidField, "'%s' must be %s, not null. Leave it out to keep what it is.", name, wantedKind(f.Type.Elem())).At(name)
		}
	}
	return nil
}

// decodeOptional reads a small JSON object like decode, and nothing where there is no body.
func (c *call) decodeOptional(w http.ResponseWriter, into any) error {
	if c.request.ContentLength == 0 {
		return nil
	}
	return c.decode(w, into)
}

// members returns what the members of a struct are called in JSON.
func members(t reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// decodeLarge reads a JSON object of another node.
func (c *call) decodeLarge(w http.ResponseWriter, into any, limit int64) error {
	raw, err := c.readBody(w, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(raw), into); err != nil {
		return j17.Errorf(j17.CodeInvalidJSON, "The request is not what another node of this version would send.").Because(err)
	}
	return nil
}

// scratchFile opens a file for data that has to wait. It has no name, so that nothing is left of it after a crash.
func scratchFile() (*os.File, error) {
	f, err := os.CreateTemp("", "j17-*")
	if err != nil {
		return nil, noRoom(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// noRoom is the error of a body that could not be put aside.
func noRoom(err error) error {
	return j17.Errorf(j17.CodeStorageFull, "The server could not put the file aside: there is no room in its folder for temporary files (TMPDIR), or no such folder. Nothing was stored.").Because(err)
}

// wantedKind says what a member of a Go type takes.
func wantedKind(t reflect.Type) string {
	switch kind := t.Kind(); {
	case kind == reflect.String:
		return "a string"
	case kind == reflect.Bool:
		return "true or false"
	case t.ConvertibleTo(reflect.TypeFor[float64]()): // numbers
		return "a whole number in digits alone, and not too large"
	case kind == reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// givenKind names what was given instead of what was asked for, from the words of encoding/json.
func givenKind(words string) string {
	if number, ok := strings.CutPrefix(words, "number "); ok {
		return j17.Printable(number)
	}
	switch words {
	case "array", "object":
		return "an " + words
	case "bool":
		return "true or false"
	default:
		return "a " + words
	}
}
