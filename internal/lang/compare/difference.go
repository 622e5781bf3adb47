package compare

import (
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

// Difference is what 'j17 spec diff --json' prints and what the tool for assistants answers.
type Difference struct {
	Changes []Change `json:"changes"`
	// Compatible reports that no finding is an error.
	Compatible bool              `json:"compatible"`
	Findings   []diag.Diagnostic `json:"findings"`
	// Tried are the event types of which stored events decide: a deploy tries them.
	Tried []string `json:"tried"`
	// Proposals is nil unless it was asked for.
	Proposals []Proposal `json:"proposals,omitzero"`
}

// Specs returns the difference between two specs, with what next lacks where propose is set.
func Specs(old, next *spec.Compiled, propose bool) Difference {
	d := Difference{
		Changes:  append([]Change{}, Changes(old, next)...),
		Findings: append([]diag.Diagnostic{}, Compatibility(old, next)...),
		Tried:    []string{},
	}
	errors, _ := diag.Count(d.Findings)
	d.Compatible = errors == 0
	for _, t := range Trials(old, next) {
		d.Tried = append(d.Tried, t.Name())
	}
	if propose {
		d.Proposals = append([]Proposal{}, Propose(old, next)...)
	}
	return d
}
