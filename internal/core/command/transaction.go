package command

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/base/value"
)

// MaxWrites is the number of writes that one transaction may hold.
const MaxWrites = 100

// The placeholders of a transaction for ids that are chosen when it is carried out: fresh, as the id of a key, asks for
// a new aggregate, and a text of made followed by a name is the id of the new aggregate with that name in "as".
const (
	fresh = "_new"
	made  = "$.new."
)

// ReadTransaction makes a command of the body of a request for several aggregates: {"writes": [{"key", "as", "events":
// [{"type", "data"}], "previous_length"}], "conditions", "metadata": {"actor", "target"}}. A fault of the form of the
// body is kept with the command and reported when it is checked.
func ReadTransaction(body value.Value) Command {
	c := Command{Several: true}
	c.transaction(body)
	if c.fault == nil {
		c.readAgents(body.Get("metadata"), "actor", "target")
		c.ReadConditions(body.Get("conditions"))
	}
	return c
}

func (c *Command) transaction(body value.Value) {
	if err := OnlyMembers(body, "", "writes", "conditions", "metadata"); err != nil {
		c.wrong(AtEvents, err)
		return
	}
	writes := body.Get("writes")
	switch {
	case writes.IsMissing():
		c.wrong(AtEvents, j17.Errorf(j17.CodeMissingField, "Missing 'writes': the list of what is to be written to each aggregate").At("writes"))
	case writes.Kind() != value.Array:
		c.wrong(AtEvents, j17.Errorf(j17.CodeInvalidField, "'writes' must be an array").At("writes"))
	case writes.Len() == 0:
		c.wrong(AtEvents, j17.Errorf(j17.CodeInvalidField, "'writes' must not be empty").At("writes"))
	case writes.Len() > MaxWrites:
		c.wrong(AtEvents, j17.Errorf(j17.CodePayloadTooLarge, "A transaction can hold at most %d writes, this one has %d. Split it.", MaxWrites, writes.Len()).At("writes"))
	}
	if c.fault != nil {
		return
	}

	// Names are known to the writes after the one that declares them.
	names, events := map[string]bool{}, 0
	c.Writes = make([]Write, 0, writes.Len())
	for i, v := range writes.Elems() {
		at := fmt.Sprintf("writes[%d]", i)
		w, err := readWrite(v, at, names)
		if w.Type != "" {
			c.Writes = append(c.Writes, w)
		}
		if err != nil {
			c.wrong(AtEvents, err)
			return
		}
		if events += len(w.Events); events > MaxBatch {
			c.wrong(AtEvents, j17.Errorf(j17.CodePayloadTooLarge, "A transaction can hold at most %d events. Split it.", MaxBatch).At(at+".events"))
			return
		}
		if w.As != "" {
			names[w.As] = true
		}
	}
}

// readWrite reads the write to one aggregate. names are those that earlier writes have declared.
func readWrite(v value.Value, at string, names map[string]bool) (Write, error) {
	w := Write{Batch: true}
	if err := OnlyMembers(v, at, "key", "as", "events", "previous_length"); err != nil {
		return w, err
	}

	// The aggregate.
	if err := w.readKey(v.Get("key"), at+".key", names); err != nil {
		return w, err
	}
	if err := w.readAs(v.Get("as"), at+".as", names); err != nil {
		return w, err
	}
	length, err := readLength(v, at)
	if err != nil {
		return w, err
	}
	w.Length = length

	// The events.
	events := v.Get("events")
	switch {
	case events.IsMissing():
		return w, j17.Errorf(j17.CodeMissingField, "Missing 'events': what is to happen to the aggregate").At(at + ".events")
	case events.Kind() != value.Array:
		return w, j17.Errorf(j17.CodeInvalidField, "'events' must be an array").At(at + ".events")
	case events.Len() == 0:
		return w, j17.Errorf(j17.CodeInvalidField, "Events array cannot be empty").At(at + ".events")
	case events.Len() > MaxBatch:
		return w, j17.Errorf(j17.CodePayloadTooLarge, "A transaction can hold at most %d events. Split it.", MaxBatch).At(at + ".events")
	}
	w.Events = make([]Event, 0, events.Len())
	for i, e := range events.Elems() {
		place := fmt.Sprintf("%s.events[%d]", at, i)
		ev, err := batchEvent(e)
		if err != nil {
			return w, within(err, place)
		}
		if name, path, found := unknownName(ev.Data, names); found {
			return w, notDeclared(name, j17.JoinPath(place+".data", path))
		}
		w.Events = append(w.Events, ev)
	}
	return w, nil
}

// within returns the error with its path prefixed by a place.
func within(err error, place string) error {
	if e, ok := err.(*j17.Error); ok { //nolint:errorlint // made here, a moment ago
		return e.At(j17.JoinPath(place, e.Path))
	}
	return err
}

// readKey reads the key of the aggregate.
func (w *Write) readKey(v value.Value, at string, names map[string]bool) error {
	switch {
	case v.IsMissing():
		return j17.Errorf(j17.CodeMissingField, "Missing 'key': the aggregate that the events are of, as type:id").At(at)
	case v.Kind() != value.String:
		return j17.Errorf(j17.CodeInvalidField, "'key' must be a string, the type and the id of an aggregate with a colon between them").At(at)
	}
	typ, id, ok := strings.Cut(v.Str(), ":")
	if !ok || typ == "" {
		return j17.Errorf(j17.CodeInvalidField, "'key' must be the type and the id of an aggregate with a colon between them, such as order:%s", fresh).At(at)
	}
	w.Type, w.ID = typ, id
	if id == fresh {
		w.ID, w.New = "", true
	}
	if name, ok := nameOf(id); ok && !names[name] {
		return notDeclared(name, at)
	}
	return nil
}

// readAs reads the name by which later writes refer to a new aggregate.
func (w *Write) readAs(v value.Value, at string, names map[string]bool) error {
	switch {
	case v.IsMissing():
		return nil
	case v.Kind() != value.String || !isName(v.Str()):
		return j17.Errorf(j17.CodeInvalidField, "'as' must be a name of lower-case letters, digits and underscores that begins with a letter").At(at)
	case !w.New:
		return j17.Errorf(j17.CodeInvalidField, "'as' gives a name to the id that the server chooses for a key that ends with ':%s'. This key has an id: leave 'as' out.", fresh).At(at)
	case names[v.Str()]:
		return j17.Errorf(j17.CodeInvalidField, "The name '%s' is taken by an earlier write. Choose another one.", v.Str()).At(at)
	}
	w.As = v.Str()
	return nil
}

// isName reports whether a text may be the name of a new aggregate.
func isName(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case b >= 'a' && b <= 'z', i > 0 && (b == '_' || b >= '0' && b <= '9'):
		default:
			return false
		}
	}
	return s != ""
}

// nameOf returns the name in a placeholder for the id of a new aggregate. It returns false for every other text.
func nameOf(s string) (string, bool) {
	name, ok := strings.CutPrefix(s, made)
	return name, ok && isName(name)
}

func notDeclared(name, at string) error {
	return j17.Errorf(j17.CodeInvalidField, "No earlier write declares the name '%s' that '%s%s' stands for: \"as\": \"%s\" does, beside a key that ends with ':%s'.", name, made, name, name, fresh).At(at)
}

// unknownName finds the first placeholder in v whose name is not among names, and the path to it from v.
func unknownName(v value.Value, names map[string]bool) (name, path string, found bool) {
	switch v.Kind() { //nolint:exhaustive // others have no texts
	case value.String:
		name, ok := nameOf(v.Str())
		return name, "", ok && !names[name]
	case value.Array:
		for i, e := range v.Elems() {
			if name, path, found := unknownName(e, names); found {
				return name, j17.JoinPath("["+strconv.Itoa(i)+"]", path), true
			}
		}
	case value.Object:
		for _, m := range v.Members() {
			if name, path, found := unknownName(m.Value, names); found {
				return name, j17.JoinPath(j17.Printable(m.Key), path), true
			}
		}
	}
	return "", "", false
}

// Named returns the command with an id from mint for each new aggregate, and with the placeholders for it replaced. c
// is not changed.
func (c *Command) Named(mint func() string) Command {
	named := *c
	if !c.makes() {
		return named
	}
	named.Writes = slices.Clone(c.Writes)
	ids := map[string]string{}
	for i := range named.Writes {
		w := &named.Writes[i]
		if w.New {
			w.ID = mint()
		}
		if !c.Several {
			continue
		}

		// Replace names of earlier writes before adding its own name.
		if name, ok := nameOf(w.ID); ok {
			w.ID = ids[name]
		}
		if len(ids) > 0 {
			w.Events = slices.Clone(w.Events)
			for j := range w.Events {
				w.Events[j].Data, _ = replaced(w.Events[j].Data, ids)
			}
		}
		if w.As != "" {
			ids[w.As] = w.ID
		}
	}
	return named
}

// makes reports whether the command creates an aggregate whose id has not been chosen.
func (c *Command) makes() bool {
	return slices.ContainsFunc(c.Writes, func(w Write) bool { return w.New })
}

// replaced returns v with placeholders replaced by ids, and whether there were any.
func replaced(v value.Value, ids map[string]string) (value.Value, bool) {
	switch v.Kind() { //nolint:exhaustive // others have no texts
	case value.String:
		if name, ok := nameOf(v.Str()); ok {
			return value.StringValue(ids[name]), true
		}
	case value.Array:
		var elems []value.Value
		for i, e := range v.Elems() {
			if r, ok := replaced(e, ids); ok {
				if elems == nil {
					elems = slices.Clone(v.Elems())
				}
				elems[i] = r
			}
		}
		if elems != nil {
			return value.ArrayValue(elems...), true
		}
	case value.Object:
		var members []value.Member
		for i, m := range v.Members() {
			if r, ok := replaced(m.Value, ids); ok {
				if members == nil {
					members = slices.Clone(v.Members())
				}
				members[i].Value = r
			}
		}
		if members != nil {
			return value.ObjectValue(members...), true
		}
	}
	return v, false
}
