package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
)

func projectionsCommand(e *env) *cobra.Command {
	return group("projection", "The projections of an environment: views over several aggregates",
		projectionListCommand(e), projectionShowCommand(e), projectionGetCommand(e), projectionRowsCommand(e),
		projectionDeployCommand(e), projectionDryRunCommand(e), projectionRemoveCommand(e),
		projectionRebuildCommand(e), projectionCancelCommand(e), projectionVerifyCommand(e))
}

// projectionCall sends a request about the projections of the environment that the command is about.
func (o *operating) projectionCall(ctx context.Context, method string, more []string) (json.RawMessage, error) {
	path, err := o.opsPath(ctx, append([]string{"projections"}, more...)...)
	if err != nil {
		return nil, err
	}
	var raw json.RawMessage
	err = o.call(ctx, method, path, nil, nil, &raw)
	return raw, err
}

// decoded reads an answer of the server.
func decoded[T any](raw json.RawMessage) (T, error) {
	var into T
	err := json.Unmarshal(raw, &into)
	if err != nil {
		err = fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	return into, err
}

func projectionListCommand(e *env) *cobra.Command {
	return listCommand(e, listing[wire.Projection]{
		short: "List the projections of an environment with the progress of their indexes", example: "  j17 projection list --env staging",
		path: "projections", header: []string{"name", "origin", "status", "rows", "lag"},
		describe: func(p wire.Projection) []string {
			status, indexed := p.Status, ""
			if p.Build != nil && p.Build.Status == "running" {
				status += fmt.Sprintf(" %d/%d", p.Build.Done, p.Build.Total)
				if p.Build.Error != "" {
					status += ", waits: " + p.Build.Error
				}
			}
			if p.Rows != nil {
				indexed = strconv.FormatUint(*p.Rows, 10)
			}
			return []string{p.Name, p.Origin, status, indexed, strconv.FormatUint(p.Lag, 10)}
		},
	})
}

func projectionShowCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Print the definition of a projection", Args: exactly("NAME"),
		Long:    "Print the definition of a projection. --json adds where it is declared and the progress of its index.",
		Example: "  j17 projection show order_with_details --env staging > order_with_details.json",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.projectionCall(cmd.Context(), http.MethodGet, args)
		if err != nil {
			return err
		}
		if asJSON {
			return e.printAnswer(raw)
		}

		// It is shown as it could be deployed: with its name.
		p, err := decoded[wire.Projection](raw)
		if err != nil {
			return err
		}
		definition, err := value.Parse(p.Definition)
		if err != nil {
			return fmt.Errorf("the server's answer cannot be read: %w", err)
		}
		if p.Build != nil && p.Build.Status == "running" && p.Build.Error != "" {
			e.note("Its index is being built, and that waits: %s\n", plain(p.Build.Error))
		}
		if definition.Get("name").IsMissing() {
			members := append([]value.Member{{Key: "name", Value: value.StringValue(p.Name)}}, definition.Members()...)
			definition = value.ObjectValue(members...)
		}
		enc := json.NewEncoder(e.out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(json.RawMessage(definition.AppendJSON(nil)))
	}
	return cmd
}

// projectionFile is a file with the definition of a projection.
type projectionFile struct {
	name   string
	source []byte
	// within is the pointer to the definition in the file.
	within string
}

func readProjectionFile(e *env, name string) (*projectionFile, error) {
	source, err := e.readText(name, spec.MaxSize, "Split it into several projections.")
	if _, ok := errors.AsType[tooLarge](err); ok {
		return nil, notASpec{err}
	}
	if err != nil {
		return nil, err
	}
	f := &projectionFile{name: name, source: source}
	v, err := value.Parse(source)
	if err != nil || v.Kind() != value.Object {
		found := diag.Diagnostic{
			Severity: diag.Error, Line: 1, Column: 1, Message: "the definition of a projection must be an object",
			Hint: `write {"name": ..., "for_each": ..., "sources": ..., "select": ...}; 'j17 docs spec#projections' tells more`,
		}
		if wrong, ok := errors.AsType[*value.SyntaxError](err); ok && len(bytes.TrimSpace(source)) > 0 {
			found = diag.Diagnostic{
				Severity: diag.Error, Line: wrong.Line, Column: wrong.Column, Message: wrong.Message,
			}
		}
		return nil, e.invalidFile(name, source, []diag.Diagnostic{found}, "The file has no definition of a projection")
	}
	if !v.Get("projection").IsMissing() {
		f.within = "/projection"
	}
	return f, nil
}

// postProjection sends the definition and shows the findings of a refusal.
func (o *operating) postProjection(ctx context.Context, f *projectionFile, query url.Values) (json.RawMessage, error) {
	path, err := o.opsPath(ctx, "projections")
	if err != nil {
		return nil, err
	}
	var raw json.RawMessage
	err = o.change(ctx, !query.Has("dry_run"), func() error {
		err := o.Call(ctx, client.Request{
			// As it is, since the server counts lines in it.
			Method: http.MethodPost, Path: append([]string{"api"}, path...), Query: query, Body: f.source,
		}, &raw)
		refused, ok := errors.AsType[*client.Error](err)
		switch {
		case !ok || len(refused.Problem.Errors) == 0:
		case o.env.machine:
			refused.Problem.Errors = f.placed(refused.Problem.Errors)
		default:
			o.env.show(f.name, f.source, f.findings(refused.Problem.Errors, diag.Error))
			refused.Problem.Errors = nil // shown
		}
		return err
	})
	return raw, err
}

// findings places what the server says about a definition in the file.
func (f *projectionFile) findings(from []j17.FieldError, severity diag.Severity) []diag.Diagnostic {
	var found []diag.Diagnostic
	for _, at := range from {
		d := diag.Diagnostic{
			Severity: severity, Pointer: diag.Pointer(f.within + at.Pointer), Message: at.Message, Hint: at.Hint,
		}
		place, _ := value.Locate(string(f.source), string(d.Pointer))
		d.Line, d.Column = value.Position(string(f.source), place.Key)
		found = append(found, d)
	}
	return found
}

// placed moves the places of findings, which the server counts from the beginning of the definition, to their places in
// the file.
func (f *projectionFile) placed(from []j17.FieldError) []j17.FieldError {
	if f.within == "" {
		return from
	}
	place, _ := value.Locate(string(f.source), f.within)
	line, column := value.Position(string(f.source), place.Start)
	placed := slices.Clone(from)
	for i := range placed {
		at := &placed[i]
		if at.Line == 1 {
			at.Column += column - 1
		}
		if at.Line > 0 {
			at.Line += line - 1
		}
	}
	return placed
}

// answer is an answer of the server with the warnings about the definition at their places in the file, and with what
// else was reported when it was posted.
func (f *projectionFile) answer(
	raw json.RawMessage, warnings []j17.FieldError, more ...value.Member,
) (json.RawMessage, error) {
	answer, err := value.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	text, err := json.Marshal(append([]j17.FieldError{}, f.placed(warnings)...)) // [] where there are none
	if err != nil {
		return nil, err
	}
	found, err := value.Parse(text)
	if err != nil {
		return nil, err
	}
	members := slices.Clone(answer.Members())
	for _, m := range append(more, value.Member{Key: "warnings", Value: found}) {
		if i := slices.IndexFunc(members, func(had value.Member) bool { return had.Key == m.Key }); i >= 0 {
			members[i] = m
		} else {
			members = append(members, m)
		}
	}
	return value.ObjectValue(members...).AppendJSON(nil), nil
}

// waiting are the flags of commands after which an index is built.
type waiting struct{ detach bool }

func (w *waiting) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.detach, "detach", false, "do not wait until the index is built")
}

// pollTime is how long the command waits before it asks again how far a build is.
const pollTime = 500 * time.Millisecond

// buildWatch shows on a terminal how far a build, a comparison or a checkpoint is.
type buildWatch struct {
	bar *progressbar.ProgressBar // nil without a terminal
}

// watchBuild shows what is done on a terminal.
func watchBuild(e *env, what string) *buildWatch {
	if !terminal(e.err) {
		return &buildWatch{}
	}
	return &buildWatch{e.bar(-1, what)}
}

// pause shows the progress and waits until it is time to ask again.
func (w *buildWatch) pause(ctx context.Context, done, total uint64) error {
	if w.bar != nil && total > 0 {
		w.bar.ChangeMax64(int64(total))
		_ = w.bar.Set64(int64(done)) // it is decoration
	}
	system := clock.System{}
	return system.Wait(ctx, system.Now().Add(pollTime))
}

func (w *buildWatch) end() {
	if w.bar != nil {
		_ = w.bar.Finish() // it is decoration
	}
}

// await shows the progress of a projection's index until the build ends, and returns what the server then says of the
// projection.
func (o *operating) await(ctx context.Context, raw json.RawMessage, w *waiting) (json.RawMessage, error) {
	e := o.env
	p, err := decoded[wire.Projection](raw)
	if err != nil || w.detach || p.Build == nil || p.Build.Status != "running" {
		return raw, err
	}
	watch := watchBuild(e, "building")
	for p.Build != nil && p.Build.Status == "running" {
		if err := watch.pause(ctx, p.Build.Done, p.Build.Total); err != nil {
			e.note("The build goes on in the background; 'j17 projection list' shows how far it is.\n")
			return nil, interrupted(ctx, err)
		}
		if raw, err = o.projectionCall(ctx, http.MethodGet, []string{p.Name}); err != nil {
			return nil, err
		}
		if p, err = decoded[wire.Projection](raw); err != nil {
			return nil, err
		}
	}
	watch.end()
	if p.Build != nil && p.Build.Status == "failed" {
		return raw, fmt.Errorf("the index of %s could not be built: %s", plain(p.Name), plain(p.Build.Error))
	}
	return raw, nil
}

func projectionDeployCommand(e *env) *cobra.Command {
	var w waiting
	var prepare, asJSON bool
	cmd := &cobra.Command{
		Use: "deploy FILE", Short: "Deploy the definition of a projection to an environment", Args: exactly("FILE"), ValidArgsFunction: jsonFiles,
		Long: `Deploy the definition of a projection to an environment, in the place of the one that was deployed under its name before. It stays when
specs are deployed later. What the spec declares is changed with the spec.

An index is built in the background if that takes long, and the command waits for it; --detach does not. With --prepare the definition
takes effect only when its index is built: until then the previous one serves.

Exit code 0: deployed, 3: the definition is not valid, 4: the spec declares a projection of that name.`,
		Example: "  j17 projection deploy order_summary.json --env staging",
	}
	r := opsFlags(cmd)
	w.flags(cmd)
	cmd.Flags().BoolVar(&prepare, "prepare", false, "build the index first, and let the definition count when that is done")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := readProjectionFile(e, args[0])
		if err != nil {
			return err
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		query := url.Values{}
		if prepare {
			query.Set("prepare", "true")
		}
		raw, err := o.postProjection(cmd.Context(), f, query)
		if err != nil {
			return err
		}
		done, err := decoded[wire.PostedProjection](raw)
		if err != nil {
			return err
		}
		if !asJSON {
			e.show(f.name, f.source, f.findings(done.Warnings, diag.Warning))
		}

		// The build, and what there is after it.
		if raw, err = o.await(cmd.Context(), raw, &w); err != nil {
			return err
		}
		if asJSON {
			if raw, err = f.answer(raw, done.Warnings, value.Member{
				Key: "created", Value: value.BoolValue(done.Created),
			}); err != nil {
				return err
			}
			return e.printAnswer(raw)
		}
		text := "Replaced the projection %s in %s.\n"
		if done.Created {
			text = "Deployed the projection %s to %s.\n"
		}
		if w.detach && done.Build != nil && done.Build.Prepared != nil {
			text = "The projection %s is prepared in %s; 'j17 projection list' shows how far it is.\n"
		}
		_, err = fmt.Fprintf(e.out, text, plain(done.Name), cmp.Or(o.connection.env.value, string(j17.Prod)))
		return err
	}
	return cmd
}

func projectionDryRunCommand(e *env) *cobra.Command {
	var aggregates int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "dry-run FILE", Short: "Test the definition of a projection on the stored events", Args: exactly("FILE"), ValidArgsFunction: jsonFiles,
		Long: `Test the definition of a projection on the stored events, and change nothing: which rows would differ from those of the projection that is
deployed under its name, which could not be computed, and what its index would cost.

Exit code 0: it could be deployed, 3: the definition is not valid.`,
		Example: "  j17 projection dry-run order_summary.json --env staging",
	}
	r := opsFlags(cmd)
	cmd.Flags().IntVar(&aggregates, "aggregates", 100, "at most this `number` of rows is made")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := readProjectionFile(e, args[0])
		if err != nil {
			return err
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.postProjection(cmd.Context(), f, url.Values{
			"dry_run": {"true"}, "aggregates": {strconv.Itoa(aggregates)},
		})
		if err != nil {
			return err
		}
		tried, err := decoded[wire.ProjectionDryRun](raw)
		if err != nil {
			return err
		}
		if asJSON {
			if raw, err = f.answer(raw, tried.Warnings); err != nil {
				return err
			}
			return e.printAnswer(raw)
		}
		e.show(f.name, f.source, f.findings(tried.Warnings, diag.Warning))
		var b strings.Builder
		describeTrial(&b, &tried.Replay, &tried.Price)
		_, err = io.WriteString(e.out, b.String())
		return err
	}
	return cmd
}

// describeTrial adds what a definition would change in the rows, and what it would cost, for people.
func describeTrial(b *strings.Builder, r *wire.Replay, price *wire.Price) {
	rest := ""
	if !r.Complete {
		rest = "; there are more"
	}
	fmt.Fprintf(b, "%s made: %d would differ%s\n", j17.Count(r.Aggregates, "row"), r.Changed, rest)
	if r.Failed > 0 {
		fmt.Fprintf(b, "%d could not be made\n", r.Failed)
	}
	describeDifferences(b, r.Differences)
	if price == nil || price.Entries == 0 {
		return
	}
	about := "about "
	if price.Exact {
		about = ""
	}
	fmt.Fprintf(b, "index: %s%s of %s, %.1f MiB, built in about %.1f s\n", about, j17.Count(price.Entries, "entry"), j17.Count(price.Rows, "row"), float64(price.Bytes)/(1<<20), price.Seconds)
	if price.Widest != nil {
		fmt.Fprintf(
			b, "widest: a change of %s changes %s\n", plain(price.Widest.Key), j17.Count(int(price.Widest.Rows), "row"),
		)
	}
}

func projectionRemoveCommand(e *env) *cobra.Command {
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use: "remove NAME", Short: "Remove a projection that was deployed by itself", Args: exactly("NAME"),
		Long:    "Remove a projection that was deployed by itself, and its index. What the spec declares goes away with the spec.",
		Example: "  j17 projection remove order_summary --env staging",
	}
	r := opsFlags(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		env := cmp.Or(o.connection.env.value, string(j17.Prod))
		if err := e.confirm(
			cmd.Context(), yes, fmt.Sprintf("Remove the projection %s of %s?", plain(args[0]), env),
		); err != nil {
			return err
		}
		if _, err := o.projectionCall(cmd.Context(), http.MethodDelete, args); err != nil {
			return err
		}
		if asJSON {
			return e.printJSON(struct {
				Name        string `json:"name"`
				Environment string `json:"environment"`
				Removed     bool   `json:"removed"`
			}{args[0], env, true})
		}
		_, err = fmt.Fprintf(e.out, "Removed the projection %s of %s.\n", plain(args[0]), env)
		return err
	}
	return cmd
}

// describeDifferences adds the places in which states or rows differ, for people.
func describeDifferences(b *strings.Builder, all []wire.StateDifference) {
	for i, difference := range all {
		if i == shownDifferences {
			fmt.Fprintf(b, "  and %d more; --json shows them\n", len(all)-shownDifferences)
			break
		}
		fmt.Fprintf(b, "  %s\n", plain(difference.Key))
		if difference.Error != "" {
			fmt.Fprintf(b, "    ! %s\n", plain(difference.Error))
		}
		for _, c := range difference.Changes {
			switch c.Change {
			case string(compare.Added):
				fmt.Fprintf(b, "    + %s: %s\n", plain(c.Pointer), plain(c.After))
			case string(compare.Removed):
				fmt.Fprintf(b, "    - %s: %s\n", plain(c.Pointer), plain(c.Before))
			case string(compare.Changed):
				fmt.Fprintf(b, "    ~ %s: %s → %s\n", plain(c.Pointer), plain(c.Before), plain(c.After))
			}
		}
		if difference.More > 0 {
			fmt.Fprintf(b, "    and %d more\n", difference.More)
		}
	}
}
