package spec

import "j17/internal/base/value"

// TypeNames is an aggregate type with the names of its events.
type TypeNames struct {
	Name   string
	Events []string
}

// TypesOf returns the aggregate types of a spec in their order, compiled or not.
func TypesOf(root value.Value) []TypeNames {
	var types []TypeNames
	for _, t := range root.Get("aggregate_types").Members() {
		names := TypeNames{Name: t.Key, Events: []string{}}
		for _, ev := range t.Value.Get("events").Members() {
			names.Events = append(names.Events, ev.Key)
		}
		types = append(types, names)
	}
	return types
}
