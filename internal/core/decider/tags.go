package decider

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/work"
	"j17/internal/core/upcast"
	"j17/internal/lang/spec"
	"j17/internal/lang/tick"
)

// Limits of the tags that an event's data give for one declaration.
const (
	// maxTagValues bounds the tags of an array.
	maxTagValues = 100
	// maxTagValue bounds the bytes of a tag's value.
	maxTagValue = 256
)

// tag computes the tags of an event, apart from those of its actor and its target, and those of its time. Its key, data
// and metadata must be set. A value that cannot be a tag is an error like that of wrong data.
func (o *Event) tag(agents []string, b *work.Budget) error {
	o.Tags = agents
	if o.Spec == nil || len(o.Spec.Tags) == 0 {
		return nil
	}
	ev := tick.Event{Key: o.Key.String(), Type: o.Type, Data: tick.Parsed(o.Data), Metadata: tick.Raw(o.Metadata)}
	t := tagger{tags: slices.Clip(agents), env: tick.NewEnv(b), work: b}
	t.env.Renew(&ev)
	for _, tag := range o.Spec.Tags {
		if tag.OfTime {
			continue
		}
		err := t.add(tag)
		if cause, ok := errors.AsType[*j17.Error](err); ok && cause.Code == j17.CodeWorkLimit {
			out := j17.Errorf(j17.CodeWorkLimit, "%s; it was used up by the tags of an event %s. Nothing was written. Split it into smaller writes.", strings.TrimSuffix(cause.Message, "."), o.Type)
			out.Details = WorkDetails{EventType: o.Type, Pointer: inType(o.Spec, "tags")}
			return out.Because(cause)
		}
		if err != nil {
			return err
		}
	}
	o.Tags = t.tags
	return nil
}

// Timed reports whether the event has tags that depend on its time.
func (o *Event) Timed() bool {
	return o.Spec != nil && slices.ContainsFunc(o.Spec.Tags, func(tag *spec.Tag) bool { return tag.OfTime })
}

// TagsAt returns all tags of the event, which happens at a Unix second.
func (o *Event) TagsAt(timestamp int64) []string {
	if !o.Timed() {
		return o.Tags
	}
	tags := slices.Clone(o.Tags)
	for _, tag := range o.Spec.Tags {
		if tag.OfTime {
			tags = append(tags, tag.Name+":"+strconv.FormatInt(timestamp, 10))
		}
	}
	return tags
}

// DeclaredTags returns the tags that the spec gives an event which is stored, without those of its actor and its
// target. Values that cannot be tags are ignored: the event may be older than the declaration. The error is that of the
// budget.
func (d *Decider) DeclaredTags(stored *j17.Event, b *work.Budget) ([]string, error) {
	typ := d.Types[stored.Key.Type]
	if stored.Erased() || !tags(typ, stored.Type) {
		return nil, nil
	}
	ev, err := upcast.Read(typ, stored, stored.Key.String(), b)
	if upcast.Failure(err) != nil {
		return nil, nil // nobody can read it
	}
	if err != nil {
		return nil, err
	}
	t := tagger{env: tick.NewEnv(b), work: b, lenient: true}
	t.env.Renew(&ev)
	for _, tag := range typ.Events[ev.Type].Tags {
		if err := t.add(tag); err != nil {
			return nil, err
		}
	}
	return t.tags, nil
}

// tags reports whether events that are stored under a name have tags of their own, under the type that they are read
// as.
func tags(typ *spec.AggregateType, name string) bool {
	if typ == nil || typ.Events[name] == nil {
		return false
	}
	return len(typ.Events[name].Newest().Tags) > 0
}

// tagger collects the tags of an event.
type tagger struct {
	tags []string
	env  *tick.Env
	work *work.Budget
	// lenient ignores values that cannot be tags.
	lenient bool
}

// add adds the tags of one declaration: one for a text, a number or a boolean, one each for the elements of an array of
// them, none for null.
func (t *tagger) add(tag *spec.Tag) error {
	v, err := tag.Path.In(t.env)
	if err != nil {
		return err
	}
	at := strings.TrimSuffix(strings.TrimPrefix(tag.Path.Text(), "$."), "?")
	if v.Kind() != value.Array {
		return t.one(tag, v, at)
	}
	if v.Len() > maxTagValues && !t.lenient {
		return tagFault(tag, at, v, "an array of %d elements gives no tags, %d are allowed", v.Len(), maxTagValues)
	}
	for i, e := range v.Elems() {
		if i == maxTagValues {
			break
		}
		if err := t.one(tag, e, at+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

// one adds the tag that a value gives.
func (t *tagger) one(tag *spec.Tag, v value.Value, at string) error {
	text, ok := tagText(v)
	switch {
	case v.IsMissing() || v.Kind() == value.Null:
		return nil
	case !ok && t.lenient, len(text) > maxTagValue && t.lenient:
		return nil
	case !ok:
		return tagFault(tag, at, v, "a value of the kind %s gives no tag: a text, a number, a boolean or null is needed, or an array of them", v.Kind())
	case len(text) > maxTagValue:
		return tagFault(tag, at, v, "a value of more than %d bytes gives no tag", maxTagValue)
	}
	text = tag.Name + ":" + text
	if !t.work.Start(work.Tag, 1, len(text)) || !t.work.Spend(len(t.tags)/4) {
		return t.work.Err()
	}
	if !slices.Contains(t.tags, text) {
		t.tags = append(t.tags, text)
	}
	return nil
}

func tagFault(tag *spec.Tag, at string, received value.Value, format string, args ...any) error {
	e := j17.Errorf(j17.CodeSchemaViolation, "The event cannot have the tag '"+tag.Name+"': "+format, args...).At(at)
	e.Details = schemaDetails{
		Field: strings.TrimPrefix(at, "data."), Constraint: "tags", Expected: value.StringValue(tag.Name),
		Received: received,
	}
	return e
}

// tagText returns the text of a value in a tag. ok is false for values that cannot be tags.
func tagText(v value.Value) (text string, ok bool) {
	switch v.Kind() {
	case value.String:
		return v.Str(), true
	case value.Bool:
		return strconv.FormatBool(v.Truth()), true
	case value.Number:
		return numberText(v), true
	case value.Missing, value.Null, value.Array, value.Object:
	}
	return "", false
}

// numberText returns the same text for all spellings of a number: its digits, with a decimal point if there are digits
// after it. A text that is too long for a tag is cut off.
func numberText(v value.Value) string {
	digits, sign, magnitude := v.AppendDigits(nil)
	switch {
	case sign == 0:
		return "0"
	case max(magnitude, len(digits)) > maxTagValue || magnitude < -maxTagValue:
		return strings.Repeat("9", maxTagValue+1)
	}
	var b strings.Builder
	if sign < 0 {
		b.WriteByte('-')
	}
	switch n := len(digits); {
	case magnitude <= 0:
		b.WriteString("0." + strings.Repeat("0", -magnitude))
		b.Write(digits)
	case magnitude >= n:
		b.Write(digits)
		b.WriteString(strings.Repeat("0", magnitude-n))
	default:
		b.Write(digits[:magnitude])
		b.WriteByte('.')
		b.Write(digits[magnitude:])
	}
	return b.String()
}
