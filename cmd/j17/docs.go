package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"j17"
	"j17/docs"
	"j17/internal/lang/diag"
)

// maxHits is how many sections a search shows.
const maxHits = 20

// docsOptions are the flags of j17 docs. At most one of search, llms, llmsCore and llmsFull is set.
type docsOptions struct {
	search                   string
	asJSON                   bool
	llms, llmsCore, llmsFull bool
}

func docsCommand(e *env) *cobra.Command {
	var o docsOptions
	cmd := &cobra.Command{
		Use:   "docs [TOPIC]",
		Short: "Read the documentation in the terminal",
		Long: `Show a page of the documentation, which is part of this program. Without TOPIC, list the pages. TOPIC is a name from the list;
with '#' and a heading behind it, only that part of the page is shown.`,
		Example: "  j17 docs\n  j17 docs errors\n  j17 docs http-api#write-a-batch\n  j17 docs --search 'previous_length conflict'",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("%s takes one topic; to look for words use --search", cmd.CommandPath())}
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			library, err := docs.Load()
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return library.Topics(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			// At most one thing is asked for.
			if cmd.Flags().Changed("search") && strings.TrimSpace(o.search) == "" {
				return usageError{errors.New("--search needs a word to look for")}
			}
			wishes := len(args)
			for _, flag := range []string{"search", "llms", "llms-core", "llms-full"} {
				if cmd.Flags().Changed(flag) {
					wishes++
				}
			}
			if wishes > 1 || o.asJSON && (o.llms || o.llmsCore || o.llmsFull) {
				return usageError{errors.New("a topic, --search, --llms, --llms-core and --llms-full exclude each other, and the last three are no JSON")}
			}
			return showDocs(e, o, strings.Join(args, ""))
		},
	}

	f := cmd.Flags()
	f.StringVar(&o.search, "search", "", "list the sections that hold all of these `words`")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.BoolVar(&o.llms, "llms", false, "print llms.txt, the list of pages for assistants")
	f.BoolVar(&o.llmsCore, "llms-core", false, "print the pages on specs and their API as one text, for assistants")
	f.BoolVar(&o.llmsFull, "llms-full", false, "print all pages as one text")
	return cmd
}

func showDocs(e *env, o docsOptions, topic string) error {
	library, err := docs.Load()
	if err != nil {
		return err
	}
	switch {
	case o.llms:
		_, err = io.WriteString(e.out, library.LLMs())
	case o.llmsCore:
		_, err = io.WriteString(e.out, library.LLMsCore())
	case o.llmsFull:
		_, err = io.WriteString(e.out, library.LLMsFull())
	case o.search != "":
		err = searchDocs(e, library, o.search, o.asJSON)
	case topic != "":
		err = printPage(e, library, topic, o.asJSON)
	default:
		err = listPages(e, library, o.asJSON)
	}
	return err
}

// pageInfo is a page in the output of --json.
type pageInfo struct {
	Topic   string `json:"topic"`
	Title   string `json:"title"`
	Summary string `json:"summary"`
	Section string `json:"section,omitempty"`
	Text    string `json:"text,omitempty"`
}

func listPages(e *env, library *docs.Library, asJSON bool) error {
	if asJSON {
		list := make([]pageInfo, 0, len(library.Pages()))
		for _, p := range library.Pages() {
			list = append(list, pageInfo{Topic: p.Topic(), Title: p.Title, Summary: p.Summary})
		}
		return json.NewEncoder(e.out).Encode(list)
	}
	t := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	group := ""
	for _, p := range library.Pages() {
		if p.Group != group {
			group = p.Group
			if _, err := fmt.Fprintf(t, "\n%s\n", group); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(t, "  %s\t%s\n", p.Topic(), p.Title); err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(e.err, "\nRead a page with 'j17 docs TOPIC', look for words with 'j17 docs --search WORDS'.\n")
	return err
}

func printPage(e *env, library *docs.Library, topic string, asJSON bool) error {
	name, heading, part := strings.Cut(topic, "#")
	page, ok := library.Find(name)
	if !ok {
		hint := "'j17 docs' lists the pages"
		if near := diag.Nearest(strings.ToLower(name), library.Topics()); near != "" {
			hint = fmt.Sprintf("did you mean %q?", near)
		}
		return j17.Errorf(j17.CodeNotFound, "there is no page %s: %s", diag.Quote(name), hint)
	}
	text := page.Text
	if part {
		if text, ok = page.Section(heading); !ok {
			return j17.Errorf(j17.CodeNotFound, "the page %q has no section %s; its sections are: %s", page.Topic(), diag.Quote(heading), strings.Join(page.Headings(), "; "))
		}
	}
	if asJSON {
		return json.NewEncoder(e.out).Encode(pageInfo{
			Topic: page.Topic(), Title: page.Title, Summary: page.Summary, Section: heading, Text: text,
		})
	}
	_, err := io.WriteString(e.out, text)
	return err
}

func searchDocs(e *env, library *docs.Library, words string, asJSON bool) error {
	hits := library.Search(words, maxHits)
	if len(hits) == 0 {
		return j17.Errorf(j17.CodeNotFound, "no page has a section with %s: try fewer words, or 'j17 docs' for the list of pages", diag.Quote(words))
	}
	if asJSON {
		list := make([]pageInfo, 0, len(hits))
		for _, h := range hits {
			list = append(list, pageInfo{
				Topic: h.Page.Topic(), Title: h.Page.Title, Summary: h.Line, Section: h.Heading,
			})
		}
		return json.NewEncoder(e.out).Encode(list)
	}
	for _, h := range hits {
		if _, err := fmt.Fprintf(e.out, "%s#%s\n    %s\n", h.Page.Topic(), docs.Anchor(h.Heading), h.Line); err != nil {
			return err
		}
	}
	return nil
}
