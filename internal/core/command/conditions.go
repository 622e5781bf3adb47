package command

import (
	"fmt"
	"strings"

	"j17"
	"j17/internal/base/value"
)

// Limits of the conditions of a command.
const (
	MaxConditions     = 10
	MaxConditionTags  = 10
	MaxConditionTypes = 20
)

// Condition is what must not have happened: an event behind a position that has all of some tags and one of some types.
type Condition struct {
	// Types are patterns of event types as the caller wrote them; none: all. Tags are at least one.
	Types, Tags []string
	After       j17.StreamID
}

// ReadConditions reads the conditions of a request. What is wrong with their form comes up when what is expected is
// checked.
func (c *Command) ReadConditions(v value.Value) {
	if v.IsMissing() || c.fault != nil {
		return
	}
	const path = "conditions"
	switch {
	case v.Kind() != value.Array || v.Len() == 0 || v.Len() > MaxConditions:
		c.wrong(AtExpected, j17.Errorf(j17.CodeInvalidField, "'conditions' must be an array of 1 to %d conditions", MaxConditions).At(path))
		return
	case c.SkipOCC:
		c.wrong(AtExpected, j17.Errorf(j17.CodeInvalidField, "'conditions' and 'skip_occ' exclude each other: leave one out").At(path))
		return
	}
	for i, elem := range v.Elems() {
		condition, err := readCondition(elem, fmt.Sprintf("%s[%d]", path, i))
		if err != nil {
			c.wrong(AtExpected, err)
			return
		}
		c.Conditions = append(c.Conditions, condition)
	}
}

func readCondition(v value.Value, path string) (c Condition, err error) {
	// What must not match.
	if err := OnlyMembers(v, path, "fail_if_events_match", "after"); err != nil {
		return c, err
	}
	match, at := v.Get("fail_if_events_match"), path+".fail_if_events_match"
	if match.IsMissing() {
		return c, j17.Errorf(j17.CodeMissingField, "Missing 'fail_if_events_match': which events must not be there").At(at)
	}
	if err := OnlyMembers(match, at, "types", "tags"); err != nil {
		return c, err
	}
	if types := match.Get("types"); !types.IsMissing() { // which says: of all types
		if c.Types, err = readTexts(types, at+".types", MaxConditionTypes); err != nil {
			return c, err
		}
	}
	if c.Tags, err = readTexts(match.Get("tags"), at+".tags", MaxConditionTags); err != nil {
		return c, err
	}

	// From where on.
	after := v.Get("after")
	if after.IsMissing() {
		return c, nil
	}
	if c.After, err = j17.ParsePosition(after.Str()); err != nil {
		return c, j17.Errorf(j17.CodeInvalidField, `'after' must be the stream_id of an event, or a position that the feed has given, such as "1706789012345-0", or "0" for the beginning`).At(path + ".after")
	}
	return c, nil
}

// readTexts reads a list of texts.
func readTexts(v value.Value, path string, most int) ([]string, error) {
	name := path[strings.LastIndexByte(path, '.')+1:]
	if v.Kind() != value.Array || v.Len() == 0 || v.Len() > most {
		return nil, j17.Errorf(j17.CodeInvalidField, "'%s' must be an array of 1 to %d texts", name, most).At(path)
	}
	texts := make([]string, v.Len())
	for i, e := range v.Elems() {
		if e.Kind() != value.String {
			return nil, j17.Errorf(j17.CodeInvalidField, "'%s' must be an array of texts", name).At(
				fmt.Sprintf("%s[%d]", path, i),
			)
		}
		texts[i] = e.Str()
	}
	return texts, nil
}
