// Package docs is the documentation as part of the program: the Markdown pages of this folder, found by name or by
// words, and put together for assistants.
package docs

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Pages of internals are for contributors and not part of the program.
//
//go:embed *.md guides/*.md reference/*.md
var files embed.FS

// overview is the page that lists the others.
const overview = "README"

// Page is one page of the documentation.
type Page struct {
	// Name is the page's path without ".md", such as guides/writing-events.
	Name string
	// Title is the text of its first heading.
	Title string
	// Summary is one line about it.
	Summary string
	// Group is the heading that the overview lists it under.
	Group string
	// Text is the page in Markdown without what only the tests read.
	Text string
}

// Library is the whole documentation. It is immutable.
type Library struct {
	pages []Page
}

// Load reads the embedded pages.
func Load() (*Library, error) {
	texts := map[string]string{}
	err := fs.WalkDir(files, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := files.ReadFile(file)
		texts[strings.TrimSuffix(file, ".md")] = readable(string(raw))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("docs: %w", err)
	}
	return build(texts), nil
}

// build puts the pages in the order of the overview; pages that it does not link to follow by name.
func build(texts map[string]string) *Library {
	// A page goes into the list once, where it is named first.
	l := &Library{}
	add := func(name, summary, group string) {
		text, ok := texts[name]
		if !ok {
			return
		}
		delete(texts, name)
		p := Page{Name: name, Title: name, Summary: summary, Group: group, Text: text}
		parts := sections(text)
		if parts[0].heading != "" {
			p.Title = parts[0].heading
		}
		if p.Summary == "" {
			p.Summary = firstSentence(parts[0].body)
		}
		l.pages = append(l.pages, p)
	}

	// The overview names pages in links and rows, below headings that are their groups.
	link := regexp.MustCompile(`\[[^\]]+\]\(([^)#]+)\.md\)`)
	row := regexp.MustCompile(`^\| \[[^\]]+\]\([^)]+\) \| (.+) \|$`)
	index := texts[overview]
	add(overview, "", "Start here")
	group := "Start here"
	for line := range strings.Lines(index) {
		line = strings.TrimSpace(line)
		if h, ok := strings.CutPrefix(line, "## "); ok {
			group = h
		}
		summary := ""
		if m := row.FindStringSubmatch(line); m != nil {
			summary = m[1]
		}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			add(path.Clean(m[1]), summary, group)
		}
	}

	// Pages that it does not name come last.
	rest := make([]string, 0, len(texts))
	for name := range texts {
		rest = append(rest, name)
	}
	slices.Sort(rest)
	for _, name := range rest {
		add(name, "", "More")
	}
	return l
}

// readable drops what a page holds for the tests alone: comments, and the words behind the language of a code block.
func readable(text string) string {
	comment := regexp.MustCompile(`^<!--.*-->$`)
	var b strings.Builder
	blank := true
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		if comment.MatchString(line) {
			continue
		}
		if language, ok := strings.CutPrefix(line, "```"); ok {
			language, _, _ = strings.Cut(language, " ")
			line = "```" + language
		}
		if line == "" && blank {
			continue
		}
		blank = line == ""
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// section is a heading with what stands below it, up to the next heading of any level.
type section struct {
	heading string
	level   int
	// text is the section with its heading, body without it.
	text, body string
}

// sections cuts a page into at least one section. What looks like a heading within a code block is none.
func sections(text string) []section {
	var all []section
	var current section
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		rest := strings.TrimLeft(line, "#")
		level := len(line) - len(rest)
		if heading, ok := strings.CutPrefix(rest, " "); ok && level > 0 && !fenced {
			if current.text != "" {
				all = append(all, current)
			}
			current = section{heading: strings.TrimSpace(heading), level: level, text: line}
			continue
		}
		current.text += line
		current.body += line
	}
	return append(all, current)
}

// firstSentence returns the beginning of a section as plain text.
func firstSentence(body string) string {
	paragraph, _, _ := strings.Cut(strings.TrimSpace(body), "\n\n")
	paragraph = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`).ReplaceAllString(paragraph, "$1")
	paragraph = strings.Join(strings.Fields(paragraph), " ")
	if end := strings.Index(paragraph, ". "); end >= 0 {
		paragraph = paragraph[:end+1]
	}
	return paragraph
}

// Pages returns all pages, the overview first. The slice must not be changed.
func (l *Library) Pages() []Page { return l.pages }

// Find returns the page of a topic: its name, the last part of its name, either with ".md", in any case.
func (l *Library) Find(topic string) (Page, bool) {
	topic = strings.TrimSuffix(strings.ToLower(strings.Trim(topic, "/ ")), ".md")
	topic = strings.TrimPrefix(topic, "docs/")
	for _, p := range l.pages {
		if name := strings.ToLower(p.Name); name == topic || path.Base(name) == topic {
			return p, true
		}
	}
	return Page{}, false
}

// Topics returns what Find accepts, the shortest form of each page.
func (l *Library) Topics() []string {
	topics := make([]string, len(l.pages))
	for i, p := range l.pages {
		topics[i] = p.Topic()
	}
	return topics
}

// Topic returns the shortest name that Find accepts for the page.
func (p Page) Topic() string { return strings.ToLower(path.Base(p.Name)) }

// Headings returns the headings of the page below its title, in order.
func (p Page) Headings() []string {
	var all []string
	for _, s := range sections(p.Text) {
		if s.level > 1 {
			all = append(all, s.heading)
		}
	}
	return all
}

// Section returns the part of the page below a heading, with the headings under it. The heading may be given as its
// text or as the anchor of a link, in any case.
func (p Page) Section(heading string) (string, bool) {
	want := Anchor(strings.TrimPrefix(heading, "#"))
	var b strings.Builder
	level := 0
	for _, s := range sections(p.Text) {
		switch {
		case level == 0 && s.level > 0 && Anchor(s.heading) == want:
			level = s.level
		case level == 0:
			continue
		case s.level <= level:
			return b.String(), true
		}
		b.WriteString(s.text)
	}
	return b.String(), level > 0
}

// Anchor returns the name that a heading has in links.
func Anchor(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
		switch {
		case r == ' ' || r == '-':
			b.WriteByte('-')
		case r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Hit is a section that a search has found.
type Hit struct {
	Page Page
	// Heading is that of the section.
	Heading string
	// Line is the first line of the section with one of the words, shortened.
	Line string
}

// maxWords bounds a search, maxLine the length of a line in its result.
const (
	maxWords = 10
	maxLine  = 160
)

// Search returns the sections that hold all words of a query in any case, at most limit of them: those with the words
// in their heading first, then those with the most of them.
func (l *Library) Search(query string, limit int) []Hit {
	words := strings.Fields(strings.ToLower(query))
	if len(words) > maxWords {
		words = words[:maxWords]
	}
	if len(words) == 0 {
		return nil
	}
	type scored struct {
		hit   Hit
		score int
	}
	var found []scored
	for _, p := range l.pages {
		for _, s := range sections(p.Text) {
			if score := s.score(p.Title, words); score > 0 {
				found = append(found, scored{Hit{Page: p, Heading: s.heading, Line: s.line(words)}, score})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int { return b.score - a.score })
	hits := make([]Hit, 0, min(limit, len(found)))
	for _, f := range found[:min(limit, len(found))] {
		hits = append(hits, f.hit)
	}
	return hits
}

// score is how much a section has to do with the words, 0 if one of them is missing.
func (s *section) score(title string, words []string) int {
	const inTitle, inHeading, most = 20, 50, 20
	text, heading, title := strings.ToLower(s.text), strings.ToLower(s.heading), strings.ToLower(title)
	sum := 0
	for _, w := range words {
		n := strings.Count(text, w)
		if n == 0 {
			return 0
		}
		sum += min(n, most)
		if strings.Contains(heading, w) {
			sum += inHeading
		}
		if strings.Contains(title, w) {
			sum += inTitle
		}
	}
	return sum
}

// line returns the line of a section that shows best why it was found.
func (s *section) line(words []string) string {
	best, most := "", 0
	for line := range strings.Lines(s.body) {
		lower, n := strings.ToLower(line), 0
		for _, w := range words {
			if strings.Contains(lower, w) {
				n++
			}
		}
		if n > most {
			best, most = strings.TrimSpace(line), n
		}
	}
	if len(best) > maxLine {
		best = strings.ToValidUTF8(best[:maxLine], "") + "…"
	}
	return best
}
