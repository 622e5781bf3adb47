package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/core/part"
	"j17/internal/core/trial"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

// generationsShown is what "spec generations" prints with --json.
type generationsShown struct {
	Types  []typeShown    `json:"types,omitzero"`
	Events []renewedShown `json:"events,omitempty"`
	// Stored is what an environment has.
	Stored *storedShown `json:"stored,omitempty"`
}

// storedShown is what is stored in an environment, in which generations. Prepared is the spec that is prepared for it.
type storedShown struct {
	wire.Generations

	Environment j17.Environment    `json:"environment"`
	Prepared    *wire.PreparedSpec `json:"prepared,omitempty"`
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
		Use:   "generations [FILE]",
		Short: "Show the generations of event types, and events before and after their steps",
		Long: `Show the chain of generations of each event type that has several, or is retired: what a stored event goes through until it is read.
With --events each event of a file is brought to the newest generation, and shown before and after.

` + eventFiles + `
An event says its generation in its metadata; one with a stream_id that does not is in the first.

With --env, or without FILE, it shows how many events an environment has under which name and in which generation, how many of them cannot
be read, and how far the trial for a spec is that is prepared. That takes the login of an operator with the right inspect.

Exit code 0: all events of the file can be read, 3: one cannot, or the spec is not valid.`,
		Example: "  j17 spec generations spec.json\n  j17 spec generations spec.json --events events.jsonl\n  j17 spec generations --env staging",
		Args:    atMost("FILE"), ValidArgsFunction: jsonFiles,
	}
	r := opsFlags(cmd)
	cmd.Flags().StringVar(&events, "events", "", "`EVENTS` that are shown before and after")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var shown generationsShown
		var renewed []trial.Renewed
		var source []byte
		switch {
		case len(args) > 0:
			if err := stdinOnce(map[string]string{"FILE": args[0], "--events": events}); err != nil {
				return err
			}
			c, _, err := e.compile(args[0])
			if err != nil {
				return err
			}
			shown.Types = chains(c)
			if source, renewed, err = e.renew(cmd.Context(), c, events); err != nil {
				return err
			}
		case events != "":
			return usageError{errors.New("--events takes a FILE: the spec under which the events are read")}
		}
		if len(args) == 0 || cmd.Flags().Changed("env") {
			o, err := operate(e, cmd, r)
			if err != nil {
				return err
			}
			if shown.Stored, err = o.storedGenerations(cmd.Context()); err != nil {
				return err
			}
		}
		failed := 0
		for i := range renewed {
			if len(renewed[i].Findings) > 0 {
				failed++
			}
			shown.Events = append(shown.Events, showRenewed(&renewed[i]))
		}

		var err error
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

// renew brings the events of a file to the newest generation; "" is no file.
func (e *env) renew(ctx context.Context, c *spec.Compiled, name string) ([]byte, []trial.Renewed, error) {
	if name == "" {
		return nil, nil, nil
	}
	source, err := e.readText(name, maxEventFile, "Split it into several files.")
	if err != nil {
		return nil, nil, err
	}
	renewed, broken, err := trial.Renew(ctx, c, string(source))
	if err != nil {
		return nil, nil, interrupted(ctx, err)
	}
	if len(broken) > 0 {
		e.note("%s", diag.Render(name, source, []diag.Diagnostic{broken[0].Diagnostic}))
		return nil, nil, silent{j17.Errorf(j17.CodeInvalidJSON, "%s cannot be split into events", fileName(name))}
	}
	return source, renewed, nil
}

// storedGenerations asks what is stored in the environment that the command is about.
func (o *operating) storedGenerations(ctx context.Context) (*storedShown, error) {
	path, err := o.opsPath(ctx, "generations")
	if err != nil {
		return nil, err
	}
	shown := &storedShown{Environment: o.about.environment}
	err = o.awaitTrial(ctx, append(path, "trial"), func() error {
		return o.call(ctx, http.MethodGet, path, nil, nil, &shown.Generations)
	})
	if err != nil {
		return nil, err
	}
	if path, err = o.opsPath(ctx, "spec", "prepared"); err != nil {
		return nil, err
	}
	var prepared wire.PreparedShown
	err = o.call(ctx, http.MethodGet, path, nil, nil, &prepared)
	if j17.CodeOf(err) == j17.CodeNotFound {
		return shown, nil
	}
	shown.Prepared = &prepared.Prepared
	return shown, err
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
	if shown.Types != nil && len(shown.Types) == 0 {
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
	if shown.Stored != nil && shown.Types != nil {
		b.WriteByte('\n')
	}
	if _, err := io.WriteString(e.out, b.String()); err != nil || shown.Stored == nil {
		return err
	}
	return printStored(e, shown.Stored)
}

// printStored prints what is stored in an environment.
func printStored(e *env, s *storedShown) error {
	if len(s.Types) == 0 {
		if _, err := fmt.Fprintf(e.out, "No event type of %s has several generations or is retired.\n", s.Environment); err != nil {
			return err
		}
	} else {
		var rows [][]string
		for i := range s.Types {
			rows = append(rows, storedRows(&s.Types[i])...)
		}
		header := []string{"read as", "stored as", "generation", "events", "cannot be read"}
		if err := e.printTable(header, rows); err != nil {
			return err
		}
		verb := "are"
		if s.Trial.Events == 1 {
			verb = "is"
		}
		if _, err := fmt.Fprintf(e.out, "\n%s of %s %s not read as stored, %d cannot be read\n", j17.Count(s.Trial.Events, "event"), s.Environment, verb, s.Trial.Failed); err != nil {
			return err
		}
	}
	if s.Prepared == nil {
		return nil
	}
	_, err := fmt.Fprintf(e.out, "A spec is prepared: %s\n", describeBuild(&s.Prepared.Build))
	return err
}

// storedRows are the rows about what is stored of an event type.
func storedRows(t *wire.TypeGenerations) (rows [][]string) {
	name := t.Type
	if t.Retired {
		name += " (retired)"
	}
	for _, k := range t.Stored {
		rows = append(rows, []string{
			name, k.Name, strconv.Itoa(k.Generation), strconv.FormatUint(k.Events, 10),
			strconv.FormatUint(k.Failed, 10),
		})
	}
	if rows == nil {
		rows = [][]string{{name, "", strconv.Itoa(t.Newest), "0", "0"}}
	}
	return rows
}

// describeBuild says how far what a spec needs is.
func describeBuild(b *wire.Build) string {
	if b.Status == "failed" {
		return "it cannot be deployed: " + plain(b.Error)
	}
	return fmt.Sprintf("%s, %d of %d", buildName(b), b.Done, b.Total)
}

func buildName(b *wire.Build) string {
	if b.Kind == part.TrialKind {
		return tryingEvents
	}
	return "building"
}
