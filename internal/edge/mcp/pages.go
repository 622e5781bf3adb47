package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/lang/diag"
)

func (s *Server) addDocTools() {
	add(s, tool{
		name: "explain_error", title: "Explain an error",
		description: "Tells what a j17 error means and what to do about it. Takes an error code, such as conflict, or the whole JSON body of the error response.",
		parameters: []parameter{
			{"error", `{"type":["string","object"]}`, "The error code, or the body of the response as text or as an object.", true},
		},
	}, s.explainError)
	add(s, tool{
		name: "search_docs", title: "Search the documentation",
		description: "Finds the sections of the j17 documentation that hold all of the given words. Read what is found with read_doc.",
		parameters: []parameter{
			{"query", `{"type":"string","minLength":1,"maxLength":200}`, "A few words, in any case. Words are taken as they are, so fewer find more.", true},
		},
	}, s.searchDocs)
	add(s, tool{
		name: "read_doc", title: "Read the documentation",
		description: "Returns a page of the j17 documentation in Markdown, or one section of it. The topics are " + strings.Join(s.o.Docs.Topics(), ", ") + ".",
		parameters: []parameter{
			{"topic", `{"type":"string"}`, "The name of the page, or of a section as in cli#exit-codes.", true},
			{"section", `{"type":"string"}`, "A heading of the page, for only that part of it.", false},
		},
	}, s.readDoc)
}

// errorRow is what the documentation says about a code.
type errorRow struct {
	Code     j17.Code `json:"code"`
	Status   int      `json:"status"`
	When     string   `json:"when"`
	WhatToDo string   `json:"what_to_do"`
}

// errorRows reads the tables of the page about errors.
func (s *Server) errorRows() map[j17.Code]errorRow {
	rows := map[j17.Code]errorRow{}
	page, _ := s.o.Docs.Find("reference/errors")
	codes, _ := page.Section("Codes")
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| *(\\d+) *\\| *([^|\n]*?) *\\| *([^|\n]*?) *\\|$")
	link := regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
	for _, m := range row.FindAllStringSubmatch(codes, -1) {
		status, err := strconv.Atoi(m[2])
		if err != nil {
			continue
		}
		code := j17.Code(m[1])
		rows[code] = errorRow{
			Code: code, Status: status, When: link.ReplaceAllString(m[3], "$1"),
			WhatToDo: link.ReplaceAllString(m[4], "$1"),
		}
	}
	return rows
}

// problem is the part of an error's body that helps to explain it. Its text comes from a server and is repeated only in
// part.
type problem struct {
	Type       string           `json:"type"`
	Code       j17.Code         `json:"code"`
	Error      string           `json:"error"`
	Path       string           `json:"path"`
	EventIndex *int             `json:"event_index"`
	WriteIndex *int             `json:"write_index"`
	Details    json.RawMessage  `json:"details"`
	Errors     []j17.FieldError `json:"errors"`
}

type explanation struct {
	errorRow
	Message    string           `json:"message,omitempty"`
	Path       string           `json:"path,omitempty"`
	EventIndex *int             `json:"event_index,omitempty"`
	WriteIndex *int             `json:"write_index,omitempty"`
	Details    json.RawMessage  `json:"details,omitempty"`
	Errors     []j17.FieldError `json:"errors,omitempty"`
	ReadMore   string           `json:"read_more"`
}

// urn starts the "type" of an error's body.
const urn = "urn:j17:error:"

func (s *Server) explainError(_ context.Context, in struct {
	Error json.RawMessage `json:"error"`
},
) (any, error) {
	p, err := problemOf(in.Error)
	if err != nil {
		return nil, err
	}
	rows := s.errorRows()
	row, ok := rows[p.Code]
	if !ok {
		known := make([]string, 0, len(rows))
		for _, code := range slices.Sorted(maps.Keys(rows)) {
			known = append(known, string(code))
		}
		if near := diag.Nearest(string(p.Code), known); near != "" {
			return nil, sentencef("There is no error code %s. Did you mean %q?", diag.Quote(string(p.Code)), near)
		}
		return nil, sentencef("There is no error code %s. The codes are %s.", diag.Quote(string(p.Code)), strings.Join(known, ", "))
	}
	if len(p.Errors) > maxFindings {
		p.Errors = p.Errors[:maxFindings]
	}
	return explanation{
		errorRow: row, Message: p.Error, Path: p.Path, EventIndex: p.EventIndex, WriteIndex: p.WriteIndex,
		Details: p.Details, Errors: p.Errors,
		ReadMore: "read_doc with the topic errors",
	}, nil
}

// problemOf reads a code, a body as text or a body.
func problemOf(raw json.RawMessage) (problem, error) {
	var p problem
	body := raw
	if len(raw) > 0 && raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return p, sentencef("The error cannot be read: %v.", err)
		}
		text = strings.TrimSpace(text)
		if !strings.HasPrefix(text, "{") {
			return problem{Code: j17.Code(strings.TrimPrefix(text, urn))}, nil
		}
		body = json.RawMessage(text)
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return p, sentencef("That is neither an error code nor the JSON body of an error response: %v.", err)
	}
	if p.Code == "" {
		p.Code = j17.Code(strings.TrimPrefix(p.Type, urn))
	}
	if p.Code == "" {
		return p, sentencef("The body has no \"code\", so it is not the body of a j17 error response.")
	}
	return p, nil
}

// maxHits is how many sections a search returns.
const maxHits = 10

type hit struct {
	Topic   string `json:"topic"`
	Title   string `json:"title"`
	Section string `json:"section"`
	Line    string `json:"line"`
}

func (s *Server) searchDocs(_ context.Context, in struct {
	Query string `json:"query"`
},
) (any, error) {
	found := s.o.Docs.Search(in.Query, maxHits)
	if len(found) == 0 {
		return nil, sentencef("No section of the documentation holds all of these words: %s. Try fewer of them, or read a page with read_doc.", diag.Quote(in.Query))
	}
	var out struct {
		Hits []hit `json:"hits"`
	}
	for _, h := range found {
		out.Hits = append(out.Hits, hit{h.Page.Topic(), h.Page.Title, h.Heading, h.Line})
	}
	return out, nil
}

func (s *Server) readDoc(_ context.Context, in struct {
	Topic   string `json:"topic"`
	Section string `json:"section"`
},
) (any, error) {
	topic, heading, part := strings.Cut(in.Topic, "#")
	if part && in.Section == "" {
		in.Section = heading
	}
	page, ok := s.o.Docs.Find(topic)
	if !ok {
		return nil, sentencef("There is no page %s. The topics are %s.", diag.Quote(topic), strings.Join(s.o.Docs.Topics(), ", "))
	}
	if in.Section == "" {
		return page.Text, nil
	}
	text, ok := page.Section(in.Section)
	if !ok {
		return nil, sentencef("The page %q has no section %s. Its sections are: %s.", page.Topic(), diag.Quote(in.Section), strings.Join(page.Headings(), "; "))
	}
	return text, nil
}
