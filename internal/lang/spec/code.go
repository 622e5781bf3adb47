package spec

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

const (
	handlerEntrypoint     = "apply_handler"
	implicationEntrypoint = "compute_implications"
	defaultCodeTimeout    = 100 * time.Millisecond
	maxCodeTimeout        = 10 * time.Second
)

// codeCompiler reads what names custom code.
type codeCompiler struct{ decoder }

// wasmHandler reads a handler in WebAssembly: the name of a blob, or an object.
func (c codeCompiler) wasmHandler(v value.Value, at diag.Pointer) *Code {
	code := &Code{Runtime: WASM, Entrypoint: handlerEntrypoint, Timeout: defaultCodeTimeout}
	if v.Kind() == value.String {
		c.blob(code, v, at)
		return code
	}
	if !c.object(v, at, shape{
		what: "wasm", required: []string{"blob_name"}, optional: []string{"entrypoint", "timeout_ms"},
	}) {
		return code
	}
	c.blob(code, v.Get("blob_name"), at.Key("blob_name"))
	c.function(code, v.Get("entrypoint"), at.Key("entrypoint"))
	ms := c.integer(
		v.Get("timeout_ms"), at.Key("timeout_ms"), "timeout_ms", maxCodeTimeout.Milliseconds(),
		code.Timeout.Milliseconds(),
	)
	code.Timeout = time.Duration(ms) * time.Millisecond
	return code
}

// code reads an implication in custom code. kind is its key.
func (c codeCompiler) code(kind string, v value.Value, at diag.Pointer) *Code {
	code := &Code{Runtime: WASM}
	switch kind {
	case "wasm":
		code.Entrypoint = implicationEntrypoint
		// The name of the blob is enough.
		if v.Kind() == value.String {
			c.blob(code, v, at)
			return code
		}
		if c.object(v, at, shape{
			what: "wasm", required: []string{"blob_name"}, optional: []string{"entrypoint", "mode"},
		}) {
			c.blob(code, v.Get("blob_name"), at.Key("blob_name"))
			c.function(code, v.Get("entrypoint"), at.Key("entrypoint"))
		}
	case "binary_container":
		code.Runtime = BinaryContainer
		if c.object(v, at, shape{what: kind, required: []string{"image"}, optional: []string{"mode"}}) {
			image, ok := c.text(v.Get("image"), at.Key("image"), "image")
			if ok &&
				strings.ContainsFunc(image, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
				c.Report(at.Key("image"), badImage, image)
			}
			code.Artifact = image
		}
	default:
		if c.object(v, at, shape{what: kind, required: []string{"runtime", "entrypoint"}, optional: []string{"mode"}}) {
			code.Runtime = Runtime(c.choice(v.Get("runtime"), at.Key("runtime"), "runtime",
				string(NodeContainer), string(ElixirContainer), string(RubyContainer), string(PythonContainer)))
			file, ok := c.text(v.Get("entrypoint"), at.Key("entrypoint"), "entrypoint")
			if ok && (path.IsAbs(file) || path.Clean(file) != file || file == "." || strings.HasPrefix(file, "..") ||
				strings.ContainsFunc(file, unicode.IsControl)) {
				c.Report(at.Key("entrypoint"), badSourceFile, file)
			}
			code.Entrypoint = file
		}
	}

	code.Transform = c.choice(v.Get("mode"), at.Key("mode"), "mode", "emit", "transform") == "transform"
	return code
}

// blob reads the name of a blob, to which a version may be pinned as in "name.wasm:v2".
func (c codeCompiler) blob(code *Code, v value.Value, at diag.Pointer) {
	text, ok := c.text(v, at, "a blob's name")
	if !ok {
		return
	}
	name, version, pinned := strings.Cut(text, ":v")
	if pinned {
		n, err := strconv.ParseUint(version, 10, 31)
		if err != nil || n == 0 || version[0] == '0' {
			c.Report(at, badBlob, text)
			return
		}
		code.Version = int(n)
	}
	if !isBlobName(name) {
		c.Report(at, badBlob, text)
		return
	}
	code.Artifact = name
}

func isBlobName(s string) bool {
	for i := range len(s) {
		b := s[i]
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("._-", rune(b))) {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// function reads the name of an exported function, which code already holds the default of.
func (c codeCompiler) function(code *Code, v value.Value, at diag.Pointer) {
	name, ok := c.text(v, at, "entrypoint")
	if !ok {
		return
	}
	if len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		c.Report(at, badFunction, name)
		return
	}
	code.Entrypoint = name
}

// CodeUse is a place of a spec that needs custom code.
type CodeUse struct {
	*Code
	// Pointer leads to the handler or the implication.
	Pointer diag.Pointer
}

// CodeUses lists the places that need custom code, in the order of names.
func (c *Compiled) CodeUses() []CodeUse {
	var all []CodeUse
	var implied func(list []*Implication)
	implied = func(list []*Implication) {
		for _, i := range list {
			if i.Code != nil {
				all = append(all, CodeUse{i.Code, i.Pointer})
			}
			implied(i.Pipeline)
		}
	}
	for _, typ := range slices.Sorted(maps.Keys(c.Types)) {
		events := c.Types[typ].Events
		for _, name := range slices.Sorted(maps.Keys(events)) {
			if code := events[name].Code; code != nil {
				all = append(all, CodeUse{
					code, diag.Pointer("/aggregate_types").Key(typ).Key("events").Key(name).Key("handler"),
				})
			}
			implied(events[name].Implications)
		}
	}
	return all
}
