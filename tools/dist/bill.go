package main

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// component is a part of a bill of materials in the form of CycloneDX 1.6, as far as it is filled here.
type component struct {
	Ref        string     `json:"bom-ref"`
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Licenses   []any      `json:"licenses"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// bill returns the bill of materials of a program with this checksum: what is linked in, under which licences, and what
// needs what. Its number follows from its content, and its time is that of the commit.
func (r *release) bill(platform string, sum [32]byte, linked map[string]*module) ([]byte, error) {
	// The parts, by their names.
	var parts, needs []any
	var program component
	for _, path := range slices.Sorted(maps.Keys(linked)) {
		m := linked[path]
		c := component{
			Ref: m.reference(), Type: "library", Name: m.path, Version: m.version, Licenses: m.terms(),
			PURL: m.reference(),
		}
		if m.sum != "" {
			c.Properties = []property{{"j17:go.sum", m.sum}}
		}
		of := map[string]any{"ref": c.Ref}
		var refs []string
		for _, needed := range m.needs {
			refs = append(refs, linked[needed].reference())
		}
		if len(refs) > 0 {
			of["dependsOn"] = refs
		}
		needs = append(needs, of)
		if path != "j17" {
			parts = append(parts, c)
			continue
		}
		c.Type, c.Hashes = "application", []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
		c.Properties = []property{{"j17:platform", platform}}
		if r.revision != "" {
			c.Properties = append(c.Properties, property{"j17:commit", r.revision})
		}
		program = c
	}

	document := map[string]any{
		"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata":   map[string]any{"timestamp": r.modified.UTC().Format(time.RFC3339), "component": program},
		"components": parts, "dependencies": needs,
	}
	content, err := json.Marshal(document) // members of maps are sorted
	if err != nil {
		return nil, err
	}
	document["serialNumber"] = uuid.NewSHA1(uuid.NameSpaceURL, content).URN()
	content, err = json.MarshalIndent(document, "", "  ")
	return append(content, '\n'), err
}

// reference is what a bill of materials calls a module: its package URL.
func (m *module) reference() string { return "pkg:golang/" + m.path + "@" + m.version }

// terms are the licences of a module.
func (m *module) terms() []any {
	if len(m.licences) == 1 {
		return []any{map[string]any{"license": map[string]any{"id": m.licences[0]}}}
	}
	return []any{map[string]any{"expression": strings.Join(m.licences, " AND ")}}
}
