package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
	"j17/internal/lang/compare"
	"j17/internal/lang/diag"
	"j17/internal/lang/spec"
	"j17/internal/server"
)

// deployFlags are the flags of the commands that give an environment a spec: by a file, by a promotion or by a
// rollback.
type deployFlags struct {
	dryRun, force, yes, asJSON, prepare, strict bool
	note                                        string
	aggregates, failures                        int
}

func (d *deployFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&d.dryRun, "dry-run", false, "show what would change, and change nothing")
	f.BoolVar(&d.force, "force", false, "deploy although stored events may not survive it")
	f.BoolVar(&d.strict, "strict", false, "take warnings for errors: deploy nothing where there is one")
	f.BoolVar(&d.yes, "yes", false, "do not ask before a deployment to prod")
	f.StringVar(&d.note, "note", "", "a `line` for the history")
	f.IntVar(&d.aggregates, "aggregates", 100, "at most this `number` of aggregates is replayed to compare states")
	f.IntVar(&d.failures, "failures", listedFailures, "list at most this `number` of stored events that cannot be read under the spec")
	jsonFlag(cmd, &d.asJSON)
}

// deployRequest is a deployment in terms of the API.
type deployRequest struct {
	path  []string
	query url.Values
	body  any
	// instance and env are those whose spec changes.
	instance wire.Instance
	env      j17.Environment
	// current is the entity tag of the spec that the changes are shown for, "" where it does not count.
	current string
	// name and source are those of the spec file, "" where there is no file.
	name   string
	source []byte
}

// trialPath is where the server tells how far the trial of stored events is.
func (q *deployRequest) trialPath() []string {
	return []string{"instances", q.instance.ID, "ops", string(q.env), "generations", "trial"}
}

func specDeployCommand(e *env) *cobra.Command {
	var d deployFlags
	cmd := &cobra.Command{
		Use: "deploy FILE", SuggestFor: []string{"apply", "publish", "push"}, Short: "Deploy a spec to an environment of a server", Args: exactly("FILE"), ValidArgsFunction: jsonFiles,
		Long: `Show what a spec changes in an environment, and deploy it: what is added, removed and changed, what of it stored events may not
survive, and which states would differ, of up to --aggregates aggregates. Stored events that the spec reads in another way are tried; those
that fail are listed. A dry run shows some of them before and after. On a terminal it asks before it changes prod.

Exit code 0: deployed (or with --dry-run: it could be), 3: the spec is not valid, or not compatible and there is no --force, or with
--strict there is a warning, 4: somebody else has deployed in between.`,
		Example: "  j17 spec deploy spec.json --env staging\n  j17 spec deploy spec.json --dry-run",
	}

	r := opsFlags(cmd)
	d.flags(cmd)
	cmd.Flags().BoolVar(&d.prepare, "prepare", false, "build the indexes that are needed first, and let the spec count when that is done")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// The file, which may name its environment.
		source, err := e.read(args[0])
		if err != nil {
			return err
		}
		envelope, found := spec.Unwrap(source)
		if len(found) > 0 {
			return e.invalidFile(args[0], source, found, "The envelope is not valid")
		}
		d.force = d.force || envelope.Force

		// Where it goes.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		env, err := o.environment(cmp.Or(envelope.Environment, j17.Prod))
		if err != nil {
			return err
		}
		i, err := o.chosenInstance(cmd.Context())
		if err != nil {
			return err
		}

		// The dry run and the deployment have the same body.
		q := deployRequest{
			path: []string{"instances", i.ID, "spec"}, query: url.Values{"environment": {string(env)}},
			body:     envelope.Spec,
			instance: i, env: env, name: args[0], source: envelope.Spec,
		}
		if d.note != "" {
			q.query.Set("note", d.note)
		}
		if d.force && json.Valid(envelope.Spec) {
			q.body = append(append([]byte(`{"force":true,"spec":`), bytes.TrimSpace(envelope.Spec)...), '}')
		}
		if q.current, err = o.deployed(cmd.Context(), i, env); err != nil {
			return err
		}
		return o.deploy(cmd.Context(), q, &d)
	}
	return cmd
}

func specPromoteCommand(e *env) *cobra.Command {
	var d deployFlags
	var from, to string
	var version uint64
	cmd := &cobra.Command{
		Use: "promote --from ENVIRONMENT --to ENVIRONMENT", Short: "Deploy the spec of one environment to another", Args: noArgs,
		Long: `Deploy the spec of one environment to another: the very text that was tried there. What it changes is shown first, as by
'j17 spec deploy'. Blobs do not move along.`,
		Example: "  j17 spec promote --from staging --to prod",
	}

	r := serverFlags(cmd)
	instanceFlag(cmd, r)
	d.flags(cmd)
	cmd.Flags().StringVar(&from, "from", "", "`environment` whose spec it is; required")
	cmd.Flags().StringVar(&to, "to", "", "`environment` that gets it; required")
	versionFlag(cmd, &version, "the current one of --from")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		// Mistakes in the command line are reported before anything is asked.
		if from == "" || to == "" {
			return usageError{errors.New("--from and --to say which environments, as in --from staging --to prod")}
		}
		if _, err := j17.ParseEnvironment(from); err != nil {
			return usageError{err}
		}
		into, err := j17.ParseEnvironment(to)
		if err != nil {
			return usageError{err}
		}
		if from == to {
			return usageError{fmt.Errorf("--from and --to are both %s: a promotion goes from one environment to another one. 'j17 spec rollback' deploys an earlier version again", to)}
		}

		// Where it goes.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		i, err := o.chosenInstance(cmd.Context())
		if err != nil {
			return err
		}
		o.about.environment = into

		body := map[string]any{"from": from, "to": to, "force": d.force, "note": d.note}
		if version > 0 {
			body["version"] = version
		}
		return o.deploy(
			cmd.Context(), deployRequest{
				path: []string{"instances", i.ID, "spec", "promote"}, body: body, instance: i, env: into,
			}, &d,
		)
	}
	return cmd
}

func specRollbackCommand(e *env) *cobra.Command {
	var d deployFlags
	cmd := &cobra.Command{
		Use: "rollback VERSION", Short: "Deploy an earlier version of the spec again", Args: exactly("VERSION"),
		Long: `Deploy an earlier version of the spec of an environment again, as a new version. What it changes is shown first, as by
'j17 spec deploy'; going back often needs --force. 'j17 spec history' lists the versions.`,
		Example: "  j17 spec rollback 3 --env staging",
	}

	r := opsFlags(cmd)
	d.flags(cmd)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		version, err := strconv.Atoi(strings.TrimPrefix(args[0], "v"))
		if err != nil || version < 1 {
			return usageError{fmt.Errorf("%q is no version: it is a number from 1 on, see 'j17 spec history'", args[0])}
		}

		// Where it goes.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		env, err := o.environment(j17.Prod)
		if err != nil {
			return err
		}
		i, err := o.chosenInstance(cmd.Context())
		if err != nil {
			return err
		}

		body := map[string]any{"version": version, "environment": env, "force": d.force, "note": d.note}
		return o.deploy(
			cmd.Context(), deployRequest{
				path: []string{"instances", i.ID, "spec", "rollback"}, body: body, instance: i, env: env,
			}, &d,
		)
	}
	return cmd
}

// deployed returns the entity tag of the deployed spec, "" where there is none.
func (o *operating) deployed(ctx context.Context, i wire.Instance, env j17.Environment) (string, error) {
	var answer wire.Spec
	err := o.call(
		ctx, http.MethodGet, []string{"instances", i.ID, "spec"}, url.Values{"environment": {string(env)}}, nil,
		&answer,
	)
	if j17.CodeOf(err) == j17.CodeNotFound {
		return "", nil
	}
	return `"` + answer.Deployment.Hash + `"`, err
}

// deploy shows what a deployment changes, asks where it should, and deploys.
func (o *operating) deploy(ctx context.Context, q deployRequest, d *deployFlags) error {
	trial := url.Values{"dry_run": {"true"}, "aggregates": {strconv.Itoa(d.aggregates)}}
	if d.failures != listedFailures {
		trial.Set("failures", strconv.Itoa(d.failures))
	}
	maps.Copy(trial, q.query)
	var raw json.RawMessage
	try := func() error { return o.send(ctx, q, trial, &raw) }
	if err := o.awaitTrial(ctx, q.trialPath(), try); err != nil {
		return err
	}
	var tried wire.DryRun
	if err := json.Unmarshal(raw, &tried); err != nil {
		return fmt.Errorf("the server's answer cannot be read: %w", err)
	}

	// What would change is shown first.
	e := o.env
	refused := !tried.Compatible && !d.force
	warned := d.strict && len(tried.Warnings) > 0
	if d.asJSON && (d.dryRun || refused || warned) {
		if err := e.printAnswer(judged(raw, d.strict, !refused && !warned)); err != nil {
			return err
		}
	} else if !d.asJSON {
		if err := printTried(e, q, &tried, d); err != nil {
			return err
		}
	}
	if warned {
		e.note("Nothing was deployed: there is %s, which --strict takes for errors.\n", j17.Count(len(tried.Warnings), "warning"))
		return silent{server.ErrInvalidSpec}
	}
	if refused {
		e.note("Nothing was deployed: stored events may not survive this. --force deploys it all the same.\n")
		return silent{j17.Errorf(j17.CodeIncompatibleSpec, "The spec is not compatible")}
	}
	if d.dryRun {
		return nil
	}

	// Then it is done.
	if q.env == j17.Prod && !d.yes && terminal(e.in) {
		if err := e.confirm(ctx, false, fmt.Sprintf("Deploy to %s?", o.where())); err != nil {
			return err
		}
	}
	if d.prepare {
		q.query.Set("prepare", "true")
	}
	deploy := func() error { return o.send(ctx, q, q.query, &raw) }
	if err := o.awaitTrial(ctx, q.trialPath(), deploy); err != nil {
		return err
	}
	prepared, err := decoded[wire.PreparedShown](raw)
	if err != nil {
		return err
	}
	if prepared.Prepared.Hash != "" {
		return o.awaitSpec(ctx, q, &prepared.Prepared, raw, d.asJSON)
	}
	var done wire.Deployed
	if err := json.Unmarshal(raw, &done); err != nil {
		return fmt.Errorf("the spec is deployed, but the server's answer cannot be read: %w", err)
	}

	text := "%s of %s has version %d now"
	if !done.Created {
		text = "%s of %s has this very spec already, as version %d"
	}
	text = fmt.Sprintf(text, q.env, plain(q.instance.Name), done.Deployment.Version)
	e.reportChange("%s", text)
	if d.asJSON {
		return e.printAnswer(raw)
	}
	_, err = fmt.Fprintln(e.out, text+".")
	return err
}

// judged is a server's answer to a dry run; with --strict it also says whether the spec passes, as that of validate
// does.
func judged(raw json.RawMessage, strict, valid bool) json.RawMessage {
	rest, ok := strings.CutPrefix(string(raw), `{"ok":true,`)
	if !strict || !ok {
		return raw
	}
	return json.RawMessage(fmt.Sprintf(`{"ok":true,"valid":%t,%s`, valid, rest))
}

// awaitSpec shows the progress of a spec that is being prepared, until it is deployed.
func (o *operating) awaitSpec(
	ctx context.Context, q deployRequest, p *wire.PreparedSpec, raw json.RawMessage, asJSON bool,
) error {
	e := o.env
	e.reportChange("the spec is prepared")
	w := watchBuild(e, buildName(&p.Build))
	for p.Build.Status == "running" {
		if err := w.pause(ctx, p.Build.Done, p.Build.Total); err != nil {
			e.note("The spec is still being prepared; it is deployed when its indexes are built.\n")
			return interrupted(ctx, err)
		}
		shown := json.RawMessage(nil)
		err := o.call(
			ctx, http.MethodGet, []string{"instances", q.instance.ID, "ops", string(q.env), "spec", "prepared"}, nil,
			nil, &shown,
		)
		if j17.CodeOf(err) == j17.CodeNotFound {
			w.end()
			if asJSON {
				return e.printAnswer(raw)
			}
			_, err = fmt.Fprintf(e.out, "%s of %s has the spec now.\n", q.env, plain(q.instance.Name))
			return err
		}
		if err != nil {
			return err
		}
		next, err := decoded[wire.PreparedShown](shown)
		if err != nil {
			return err
		}
		p = &next.Prepared
	}
	w.end()
	return fmt.Errorf("the spec was not deployed: %s", plain(p.Build.Error))
}

// send sends a deployment and shows the findings of a refusal.
func (o *operating) send(ctx context.Context, q deployRequest, query url.Values, into *json.RawMessage) error {
	return o.change(ctx, !query.Has("dry_run"), func() error {
		err := o.Call(ctx, client.Request{
			Method: http.MethodPost, Path: append([]string{"api"}, q.path...), Query: query, Body: q.body,
			IfMatch: q.current,
		}, into)
		o.showRefusal(err, q.name, q.source)
		return err
	})
}

// showRefusal shows the findings of a refusal at their places in a file, where there is one.
func (o *operating) showRefusal(err error, name string, source []byte) {
	refused, ok := errors.AsType[*client.Error](err)
	if ok && len(refused.Problem.Errors) > 0 && !o.env.machine {
		q := deployRequest{name: name, source: source}
		found := q.findings(refused.Problem.Errors, diag.Error)
		if name == "" && len(found.events) == 0 {
			return
		}
		if q.show(o.env, found, 0) == nil {
			refused.Problem.Errors = nil // shown
		}
	}
}

// shownDifferences is how many of a kind are shown to people.
const shownDifferences = 10

// printTried shows what a deployment changes.
func printTried(e *env, q deployRequest, t *wire.DryRun, d *deployFlags) error {
	// What changes in the spec,
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s:\n", q.env, plain(q.instance.Name))
	for _, c := range t.Changes {
		b.WriteString("  " + describeChange(c) + "\n")
	}
	if len(t.Changes) == 0 {
		b.WriteString("  nothing in the spec changes\n")
	}

	// in states,
	r := &t.Replay
	if len(r.Types) > 0 {
		rest := ""
		if !r.Complete {
			rest = "; there are more"
		}
		fmt.Fprintf(&b, "%s replayed (%s): %d would have another state%s\n", j17.Count(r.Aggregates, "aggregate"), strings.Join(r.Types, ", "), r.Changed, rest)
	}
	if r.Failed > 0 {
		fmt.Fprintf(&b, "%d would have no state, because custom code fails, or an event takes too much work or cannot be read\n", r.Failed)
	}

	describeDifferences(&b, r.Differences)

	// in projections,
	for _, p := range t.Projections {
		if p.Replay != nil {
			fmt.Fprintf(&b, "projection %s, ", plain(p.Name))
			describeTrial(&b, p.Replay, p.Price)
		}
	}

	// and what of the new spec does not fit what is stored.
	for _, f := range r.Faults[:min(shownDifferences, len(r.Faults))] {
		fmt.Fprintf(&b, "  line %d, column %d of the new spec: %s (%s; first event %d of %s, %s)\n",
			f.Line, f.Column, plain(f.Message), j17.Count(f.Times, "time"), f.Length, plain(f.Key), plain(f.EventType))
	}
	for _, v := range r.Beyond[:min(shownDifferences, len(r.Beyond))] {
		fmt.Fprintf(&b, "  event %d of %s, %s, takes more work than one event may\n", v.Length, plain(v.Key), plain(v.EventType))
	}
	if more := max(0, len(r.Faults)-shownDifferences) + max(0, len(r.Beyond)-shownDifferences); more > 0 {
		fmt.Fprintf(&b, "  and %d more; --json shows them\n", more)
	}
	describeRefusals(&b, r)

	out := e.out
	if !d.dryRun {
		out = e.err // what leads to the deployment; the deployment is the data
	}
	describeTried(&b, t.Trial, d.dryRun, columns(out))
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}

	var failed uint64
	if t.Trial != nil {
		failed = t.Trial.Failed
	}
	found, warned := q.findings(t.Incompatible, diag.Error), q.findings(t.Warnings, diag.Warning)
	found.placed = append(found.placed, warned.placed...)
	return q.show(e, found, failed)
}

// describeRefusals says which stored events the guards of the new spec would have refused. They stay as they are.
func describeRefusals(b *strings.Builder, r *wire.SpecReplay) {
	if r.Refused > 0 {
		fmt.Fprintf(b, "%s would be refused today by the guards of what changes; what is stored stays:\n", j17.Count(r.Refused, "stored event"))
	}
	shown := r.Refusals[:min(shownDifferences, len(r.Refusals))]
	for _, v := range shown {
		fmt.Fprintf(b, "  %s, %s of %s: %s\n", plain(v.StreamID), plain(v.Type), plain(v.Key), plain(v.Message))
	}
	if more := r.Refused - len(shown); more > 0 {
		fmt.Fprintf(b, "  and %d more; --json shows the first %d\n", more, len(r.Refusals))
	}
	if r.Unchecked > 0 {
		looks, were := "look", "were"
		if r.Unchecked == 1 {
			looks, were = "looks", "was"
		}
		fmt.Fprintf(b, "%s of what changes %s at other aggregates, and %s not asked\n", j17.Count(r.Unchecked, "guard"), looks, were)
	}
}

// describeChange is a line about a change of a spec.
func describeChange(c wire.Change) string {
	sign := "~"
	switch c.Kind {
	case string(compare.Added):
		sign = "+"
	case string(compare.Removed):
		sign = "-"
	}
	s := sign + " " + plain(c.What)
	if c.Name != "" {
		s += " " + plain(c.Name)
	}
	if len(c.Keys) > 0 {
		s += ": " + strings.Join(c.Keys, ", ")
	}
	return s
}
