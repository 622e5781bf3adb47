package docs

import (
	"fmt"
	"strings"
)

// CorePages returns the pages that an assistant needs to write a spec and to call its API, in the order of reading.
// Together they have to fit into MaxCore.
func CorePages() []string {
	return []string{
		"guides/modeling", "reference/spec", "reference/handlers", "reference/computed-values", "reference/paths",
		"reference/json-schema",
		"guides/refusing", "reference/implications", "guides/scheduled-events", "guides/sagas", "guides/projections",
		"guides/writing-events", "guides/reading-states", "reference/lists",
	}
}

// MaxCore is the most bytes that LLMsCore may have: 50,000 tokens at the estimate of four bytes each.
const MaxCore = 50_000 * bytesPerToken

// about is the first thing that an assistant reads.
const about = `# j17

> j17 is an event-sourcing backend that one hosts oneself: a single Go program turns one JSON spec into a durable, checked API over HTTP.

A spec declares aggregate types, their events with a JSON Schema each, and handlers that turn events into states. Clients write
events with ` + "`POST /{type}/{id}/{event}` and read states with `GET /{type}/{id}`" + `; nothing is ever overwritten.

- Check a spec with ` + "`j17 spec validate spec.json`, start a server on it with `j17 dev spec.json`." + `
- ` + "`j17 docs TOPIC` prints the pages below without a network; `j17 mcp` gives them, and a running server, to an assistant." + `
`

// bytesPerToken is a cautious estimate for English prose with code.
const bytesPerToken = 4

// tokens estimates the size of a text for a language model, to the next thousand.
func tokens(text string) string {
	return fmt.Sprintf("%d,000", (len(text)/bytesPerToken+999)/1000)
}

// LLMs returns llms.txt (llmstxt.org): what the project is and a list of the pages. Links are relative to the root of
// the repository.
func (l *Library) LLMs() string {
	var b strings.Builder
	b.WriteString(about)
	fmt.Fprintf(&b, "- `j17 docs --llms-full` prints all of these pages as one text, about %s tokens; a release carries it as llms-full.txt.\n",
		tokens(l.LLMsFull()))
	group := ""
	for _, p := range l.pages {
		if p.Group != group {
			group = p.Group
			fmt.Fprintf(&b, "\n## %s\n\n", group)
		}
		fmt.Fprintf(&b, "- [%s](docs/%s.md): %s\n", p.Title, p.Name, p.Summary)
	}
	return b.String()
}

// LLMsFull returns llms-full.txt: all pages, one after another.
func (l *Library) LLMsFull() string {
	return joined("the whole documentation", l.pages)
}

// LLMsCore returns llms-core.txt: the pages that an assistant needs to write a spec and to call its API, one after
// another.
func (l *Library) LLMsCore() string {
	var pages []Page
	for _, name := range CorePages() {
		if p, ok := l.Find(name); ok {
			pages = append(pages, p)
		}
	}
	return joined("what is needed to write a spec and to call its API; `j17 docs TOPIC` prints the other pages", pages)
}

// joined puts pages into one text that says first what it holds.
func joined(what string, pages []Page) string {
	var b strings.Builder
	for _, p := range pages {
		fmt.Fprintf(&b, "\n---\n\nPage: docs/%s.md\n\n%s", p.Name, p.Text)
	}
	return about + fmt.Sprintf("\nThis file holds %s. It has about %s tokens. Links in a page are relative to it.\n", what, tokens(b.String())) + b.String()
}
