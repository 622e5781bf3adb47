package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/value"
	"j17/internal/core/trial"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

// generationsShown is what "spec generations" prints with --json.
type generationsShown struct {
	Types  []typeShown    `json:"types"`
	Events []renewedShown `json:"events,omitempty"`
}

// typeShown is an event type and what its stored events are read as.
type typeShown struct {
	Type    string `json:"type"`
	Newest  int    `json:"newest"`
	Assume  int    `json:"assume"`
	Retired bool   `json:"retired"`
	// Chain are the forms that an event goes through, from the oldest one to that in which it is read.
	Chain []linkShown `json:"chain"`
}

// linkShown is one generation of a chain, which is of another type behind the one that is retired.
type linkShown struct {
	Type       string `json:"type"`
	Generation int    `json:"generation"`
	Closed     bool   `json:"closed,omitempty"`
}

// renewedShown is an event of a file before and after.
type renewedShown struct {
	Event      int           `json:"event"`
	Line       int           `json:"line"`
	Key        string        `json:"key"`
	Type       string        `json:"type"`
	Generation int           `json:"generation"`
	As         string        `json:"as,omitempty"`
	Before     value.Value   `json:"before"`
	After      *value.Value  `json:"after,omitempty"`
	Error      *eventFinding `json:"error,omitempty"`
}

func specGenerationsCommand(e *env) *cobra.Command {
	var events string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "generations FILE",
		Short: "Show the generations of event types, and events before and after their steps",
		Long: `Show the chain of generations of each event type that has several, or is retired: what a stored event goes through until it is read.
With --events each event of a file is brought to the newest generation, and shown before and after.

` + eventFiles + `
An event says its generation in its metadata; one with a stream_id that does not is in the first.

Exit code 0: all events can be read, 3: one cannot, or the spec is not valid.`,
		Example: "  j17 spec generations spec.json\n  j17 spec generations spec.json --events events.jsonl",
		Args:    exactly("FILE"), ValidArgsFunction: jsonFiles,
	}
	cmd.Flags().StringVar(&events, "events", "", "`EVENTS` that are shown before and after")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := stdinOnce(map[string]string{"FILE": args[0], "--events": events}); err != nil {
			return err
		}
		c, _, err := e.compile(args[0])
		if err != nil {
			return err
		}
		shown := generationsShown{Types: chains(c)}
		var renewed []trial.Renewed
		var source []byte
		if events != "" {
			if source, err = e.readText(events, maxEventFile, "Split it into several files."); err != nil {
				return err
			}
			var broken []trial.EventFinding
			if renewed, broken, err = trial.Renew(cmd.Context(), c, string(source)); err != nil {
				return interrupted(cmd.Context(), err)
			}
			if len(broken) > 0 {
				e.note("%s", diag.Render(events, source, []diag.Diagnostic{broken[0].Diagnostic}))
				return silent{j17.Errorf(j17.CodeInvalidJSON, "%s cannot be split into events", fileName(events))}
			}
		}
		failed := 0
		for i := range renewed {
			if len(renewed[i].Findings) > 0 {
				failed++
			}
			shown.Events = append(shown.Events, showRenewed(&renewed[i]))
		}

		if asJSON {
			err = e.printJSON(shown)
		} else {
			err = printGenerations(e, &shown, events, source, renewed)
		}
		if err == nil && failed > 0 {
			err = silent{j17.Errorf(j17.CodeSchemaViolation, "%s cannot be read in the newest generation", j17.Count(failed, "event"))}
		}
		return err
	}
	return cmd
}

// chains lists the event types with generations and those that are retired.
func chains(c *spec.Compiled) []typeShown {
	all := []typeShown{}
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		events := c.Types[name].Events
		for _, event := range slices.Sorted(maps.Keys(events)) {
			et := events[event]
			if len(et.Older) == 0 && !et.Retired {
				continue
			}
			shown := typeShown{Type: name + "." + event, Newest: et.Generation, Assume: et.Assumed, Retired: et.Retired}
			from := 0
			for at := et; at != nil; {
				for _, g := range at.Older {
					if g.Number >= from {
						shown.Chain = append(shown.Chain, linkShown{at.Name, g.Number, g.Closed})
					}
				}
				shown.Chain = append(shown.Chain, linkShown{Type: at.Name, Generation: at.Generation})
				if at.As == nil {
					break
				}
				at, from = at.As.Type, at.As.Generation
			}
			all = append(all, shown)
		}
	}
	return all
}

func showRenewed(r *trial.Renewed) renewedShown {
	shown := renewedShown{
		Event: r.Event, Line: r.Line, Key: r.Key, Type: r.Type, Generation: r.Generation, Before: r.Before.OrNull(),
	}
	if len(r.Findings) > 0 {
		shown.Error = &eventFindings(r.Findings[:1])[0]
		return shown
	}
	shown.After = new(r.After.OrNull())
	if r.As != r.Type {
		shown.As = r.As
	}
	return shown
}

// printGenerations prints chains and events for people.
func printGenerations(
	e *env, shown *generationsShown, name string, source []byte, renewed []trial.Renewed,
) error {
	var b strings.Builder
	if len(shown.Types) == 0 {
		b.WriteString("No event type has several generations or is retired.\n")
	}
	for i := range shown.Types {
		t := &shown.Types[i]
		b.WriteString(plain(t.Type) + ": ")
		for i, link := range t.Chain {
			if i > 0 {
				b.WriteString(" → ")
			}
			if i > 0 && link.Type != t.Chain[i-1].Type {
				b.WriteString(plain(link.Type) + " ")
			}
			fmt.Fprintf(&b, "%d", link.Generation)
			if link.Closed {
				b.WriteString(" (closed)")
			}
		}
		if t.Retired {
			b.WriteString(", retired")
		}
		if t.Assume != t.Newest {
			fmt.Fprintf(&b, ", %d where a write says none", t.Assume)
		}
		b.WriteByte('\n')
	}

	// The events, and what is wrong with those that cannot be read.
	for i := range renewed {
		r := &renewed[i]
		fmt.Fprintf(&b, "\n%s %s, generation %d\n  before  %s\n", plain(r.Key), plain(r.Type), r.Generation, shownData(r.Before.OrNull().AppendJSON(nil)))
		for _, f := range r.Findings {
			e.note("%s", diag.Render(name, source, []diag.Diagnostic{f.Diagnostic}))
		}
		if len(r.Findings) > 0 {
			fmt.Fprintf(&b, "  error   %s\n", plain(r.Findings[0].Message))
			continue
		}
		if r.As != r.Type {
			fmt.Fprintf(&b, "  read as %s\n", plain(r.As))
		}
		fmt.Fprintf(&b, "  after   %s\n", shownData(r.After.OrNull().AppendJSON(nil)))
	}
	_, err := io.WriteString(e.out, b.String())
	return err
}
