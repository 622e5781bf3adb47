package schema

import (
	"j17/internal/base/value"
	"j17/internal/lang/diag"
	"j17/internal/lang/schema/ecma"
	"j17/internal/lang/schema/format"
)

// node is a compiled schema. Parts that the schema does not have are nil; the zero node accepts everything.
type node struct {
	at diag.Pointer
	// never is set for the schema false.
	never bool
	// types is 0 where every type is accepted.
	types  typeSet
	enum   *enumRule
	number *numberRule
	text   *textRule
	array  *arrayRule
	object *objectRule
	same   *sameRule
}

// typeSet has bit 1<<kind for each accepted kind, and the bit integers.
type typeSet uint16

const integers typeSet = 1 << 15

func (t typeSet) accepts(v value.Value) bool {
	return t&(1<<(v.Kind()&15)) != 0 || t&integers != 0 && v.Kind() == value.Number && v.IsInteger()
}

// enumRule is enum, or const.
type enumRule struct {
	keyword string
	values  []value.Value
	// texts holds the strings among values where there are many.
	texts map[string]struct{}
	// weight is the number of values inside the arrays and objects among values.
	weight int
}

// numberRule has missing values for the bounds that are not set.
type numberRule struct {
	minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf value.Value
	// dear is set where one of them is no cheap number.
	dear bool
}

// unlimited is an upper bound that is not set.
const unlimited = -1

type textRule struct {
	minLength, maxLength int
	pattern              *ecma.Regexp
	format               format.Format
	formatName           string
}

type arrayRule struct {
	minItems, maxItems       int
	prefix                   []*node
	items                    *node
	contains                 *node
	minContains, maxContains int
	unique                   bool
}

type objectRule struct {
	minFields, maxFields int
	// fields are those of properties and required, byName their places where there are many.
	fields     []field
	byName     map[string]int
	required   int
	patterns   []patternField
	additional *node
	names      *node
	needs      []need
	dependents []dependent
}

type field struct {
	name string
	// schema is nil for a field that is only required.
	schema   *node
	required bool
}

type patternField struct {
	pattern *ecma.Regexp
	schema  *node
}

// need is one entry of dependentRequired.
type need struct {
	name     string
	required []string
}

// dependent is one entry of dependentSchemas.
type dependent struct {
	name   string
	schema *node
}

// sameRule has the schemas that apply to the same value as the schema they stand in.
type sameRule struct {
	// ref is the target of $ref.
	ref                        *node
	allOf, anyOf, oneOf        []*node
	not                        *node
	condition, ifTrue, ifFalse *node
}

// fieldMapFrom is the number of fields from which a map finds them faster than a search.
const fieldMapFrom = 12

// find returns the place of the field with the name, -1 if there is none. It looks first at next.
func (o *objectRule) find(name string, next int) int {
	if next < len(o.fields) && o.fields[next].name == name {
		return next
	}
	if o.byName != nil {
		if i, ok := o.byName[name]; ok {
			return i
		}
		return -1
	}
	for i := range o.fields {
		if o.fields[i].name == name {
			return i
		}
	}
	return -1
}
