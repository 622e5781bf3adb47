package spec

import (
	"bytes"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/lang/diag"
)

// Envelope is what may stand around a spec.
type Envelope struct {
	// Spec is the spec's text, with spaces in place of what stood before it so that places stay true.
	Spec []byte
	// Force asks for a deploy whatever the comparison says.
	Force bool
	// Environment is where to deploy to, "" where the envelope does not say.
	Environment j17.Environment

	// root is what Spec says, missing where it is no JSON.
	root value.Value
}

// Unwrap opens {"spec": ..., "force": ..., "environment": ...}. A text that is no such envelope, be it a bare spec or
// no JSON at all, comes back as it is, with a space in place of a byte order mark. The diagnostics are about the
// envelope and the encoding alone.
func Unwrap(src []byte) (Envelope, []diag.Diagnostic) {
	if bytes.HasPrefix(src, []byte{0xFF, 0xFE}) || bytes.HasPrefix(src, []byte{0xFE, 0xFF}) {
		return Envelope{Spec: src},
			[]diag.Diagnostic{{Line: 1, Column: 1, Message: "the file is in UTF-16", Hint: "save it as UTF-8"}}
	}
	if rest, ok := bytes.CutPrefix(src, []byte("\uFEFF")); ok {
		src = append([]byte{' '}, rest...)
	}
	whole := Envelope{Spec: src}
	if len(src) > MaxSize {
		return whole, nil
	}
	text := string(src)
	root, err := value.ParseString(text)
	if err != nil {
		return whole, nil
	}
	inner := root.Get("spec")
	if inner.IsMissing() {
		whole.root = root
		return whole, nil
	}
	c := decoder{List: &diag.List{}}
	c.object(root, "", shape{
		what: "the envelope of a spec", required: []string{"spec"}, optional: []string{"force", "environment"},
	})
	at, _ := value.Locate(text, "/spec")
	e := Envelope{
		Spec:  []byte(blank(text[:at.Start]) + text[at.Start:at.End]),
		Force: c.flag(root.Get("force"), "/force", "force"),
	}
	if v := root.Get("environment"); !v.IsMissing() {
		e.Environment = j17.Environment(
			c.choice(v, "/environment", "environment", string(j17.Prod), string(j17.Staging), string(j17.Test)),
		)
	}
	if found := place(text, c.All()); len(found) > 0 {
		return Envelope{}, found
	}
	return e, nil
}

// blank turns every character but line ends into a space.
func blank(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' {
			return r
		}
		return ' '
	}, s)
}
