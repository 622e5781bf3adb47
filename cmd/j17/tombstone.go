package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/wire"
)

func tombstonesCommand(e *env) *cobra.Command {
	return group(
		"tombstone", "The erasure of personal data", tombstoneCreateCommand(e), tombstoneListCommand(e),
		tombstoneGetCommand(e), tombstoneCancelCommand(e), tombstoneExecuteCommand(e),
		tombstoneStreamsCommand(e), tombstoneCertificateCommand(e),
	)
}

func tombstoneCreateCommand(e *env) *cobra.Command {
	var ask wire.NewTombstone
	var basis, request, by string
	var days int
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use: "create KEY", Short: "Request the erasure of an aggregate", Args: exactly("KEY"),
		Long: `Request the erasure of an aggregate, TYPE/ID, and of what is erased with it by the rules of the spec (onTombstone). Nothing is erased yet:
for at least three days it can be cancelled, and then 'j17 tombstone execute' carries it out. With --dry-run the command only shows what
would be erased.

Exit code 4: there is a tombstone of the aggregate already, 6: the aggregate has no events.`,
		Example: "  j17 tombstone create user/0b6e9d4e-6f0a-4f3c-8c53-6a1d2b7e9f10 --legal-basis gdpr_article_17 --request REQ-7",
	}
	r := opsFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&basis, "legal-basis", "", "`why` it is erased, for the certificate")
	f.StringVar(&request, "request", "", "the `number` of the request, for the certificate")
	f.StringVar(&by, "requested-by", "", "`who` has asked for it, as TYPE:ID")
	f.IntVar(&days, "grace-days", 0, "for how many `days` it can be cancelled (default 3, and never less)")
	f.BoolVar(&ask.Again, "again", false, "erase what was written since the aggregate was erased")
	f.BoolVar(&dryRun, "dry-run", false, "tell what would be erased, and ask for nothing")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// What is asked for.
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		if basis != "" {
			ask.LegalBasis = &basis
		}
		if request != "" {
			ask.RequestID = &request
		}
		if f.Changed("grace-days") {
			ask.GracePeriodDays = &days
		}
		if by != "" {
			agent, err := parseAgent("requested-by", by)
			if err != nil {
				return err
			}
			if ask.RequestedBy, err = json.Marshal(map[string]string{"type": agent.Type, "id": agent.ID}); err != nil {
				return err
			}
		}

		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "tombstone", key.Type, key.ID)
		if err != nil {
			return err
		}
		if dryRun {
			return o.tryTombstone(cmd.Context(), path, &ask, asJSON)
		}
		var raw json.RawMessage
		if err := o.call(cmd.Context(), http.MethodPost, path, nil, ask, &raw); err != nil {
			return err
		}
		return printAs(e, raw, asJSON, printTombstone)
	}
	return cmd
}

// tryTombstone shows what an erasure would reach.
func (o *operating) tryTombstone(ctx context.Context, path []string, ask *wire.NewTombstone, asJSON bool) error {
	o.scratch = true // nothing is changed
	var raw json.RawMessage
	if err := o.call(ctx, http.MethodPost, path, url.Values{"dry_run": {"true"}}, ask, &raw); err != nil {
		return err
	}
	if asJSON {
		return o.env.printAnswer(raw)
	}
	tried, err := decoded[wire.TombstoneDryRun](raw)
	if err != nil {
		return err
	}
	if err := printAffected(o.env, tried.AffectedStreams); err != nil {
		return err
	}
	if tried.More {
		o.env.note("There are more than these.\n")
	}
	return nil
}

// printAffected prints streams as a table.
func printAffected(e *env, streams []wire.AffectedStream) error {
	rows := make([][]string, len(streams))
	for i, s := range streams {
		rows[i] = []string{s.Key, strconv.FormatUint(s.EventCount, 10), s.RootBefore, s.RootAfter}
	}
	return e.printTable([]string{"key", "events", "root before", "root after"}, rows)
}

func tombstoneListCommand(e *env) *cobra.Command {
	return listCommand(e, listing[wire.Tombstone]{
		short: "List the tombstones of an environment, newest first", example: "  j17 tombstone list --status pending",
		path: "tombstones", header: tombstoneHeader(), describe: describeTombstone,
		filters: []rowFilter{withStatus("pending", "executing", "completed", "cancelled")},
	})
}

func tombstoneHeader() []string {
	return []string{"id", "key", "status", "executable at", "executed at", "streams", "request"}
}

func describeTombstone(t wire.Tombstone) []string {
	executed, request := "", ""
	if t.ExecutedAt != nil {
		executed = when(*t.ExecutedAt)
	}
	if t.RequestID != nil {
		request = *t.RequestID
	}
	streams := max(t.AffectedCount, uint64(len(t.AffectedStreams)))
	return []string{t.ID, t.Key, t.Status, when(t.ExecutableAt), executed, strconv.FormatUint(streams, 10), request}
}

// printTombstone prints a tombstone, and how far its execution is.
func printTombstone(e *env, shown wire.TombstoneShown) error {
	if err := e.printTable(tombstoneHeader(), [][]string{describeTombstone(shown.Tombstone)}); err != nil {
		return err
	}
	_, err := io.WriteString(e.out, progressOf(shown.Tombstone)+waitOf(shown.Tombstone)+triesOf(shown.Tombstone))
	return err
}

// progressOf says how far an execution is, "" where there is none under way.
func progressOf(t wire.Tombstone) string {
	p := t.Progress
	if p == nil || p.Total == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s in %s replaced, in the phase %s\n", p.EventsDone, j17.Count(p.EventsTotal, "event"), j17.Count(p.Total, "aggregate"), p.Phase)
}

// waitOf says what the removal of the old bytes waits for, "" where it does not wait.
func waitOf(t wire.Tombstone) string {
	p := t.Progress
	if p == nil || p.WaitsFor == "" {
		return ""
	}
	text := "waiting for " + plain(p.WaitsFor)
	if p.Until != nil {
		text += ", at the latest at " + when(*p.Until)
	}
	return text + "\n"
}

// triesOf says how often an execution has failed since its last success, and why it failed last, "" where it has not.
func triesOf(t wire.Tombstone) string {
	if t.Error == nil {
		return ""
	}
	text := "the last try has failed"
	if t.Progress != nil && t.Progress.Attempts > 1 {
		text = fmt.Sprintf("the last %d tries have failed", t.Progress.Attempts)
	}
	return text + ": " + plain(*t.Error) + "\n"
}

// tombstoneCommand is a command about one tombstone, which do sends a request for.
func tombstoneCommand(
	e *env, cmd *cobra.Command, do func(cmd *cobra.Command, o *operating, path []string) error,
) *cobra.Command {
	cmd.Args = exactly("ID")
	r := opsFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(cmd.Context(), "tombstones", args[0])
		if err != nil {
			return err
		}
		return do(cmd, o, path)
	}
	return cmd
}

func tombstoneGetCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.TombstoneShown]{
		use: "get ID", short: "Show a tombstone", example: "  j17 tombstone get tmb_4k7vx9tz2nqr8w3",
		method: http.MethodGet, path: "tombstones/{}", show: printTombstone,
	})
}

func tombstoneCancelCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.TombstoneShown]{
		use: "cancel ID", short: "Cancel a tombstone that is pending", example: "  j17 tombstone cancel tmb_4k7vx9tz2nqr8w3",
		long:   "Cancel a tombstone that is pending. An erasure that has begun cannot be cancelled (exit code 4).",
		method: http.MethodDelete, path: "tombstones/{}", show: printTombstone,
	})
}

func tombstoneExecuteCommand(e *env) *cobra.Command {
	var force, yes, detach, asJSON bool
	cmd := &cobra.Command{
		Use: "execute ID", Short: "Carry out the erasure of a tombstone, permanently",
		Long: `Carry out the erasure of a tombstone. It cannot be undone. Before it is due it needs --force, which the server logs.

The command waits until none of the data is left on disk and shows the progress; --detach does not wait. Interrupted, or ended with the
server, the erasure goes on by itself; the same command watches it again. On PostgreSQL erasures share the rewrite of tables, which may
begin a day later ('j17 serve --erasure-every').`,
		Example: "  j17 tombstone execute tmb_4k7vx9tz2nqr8w3",
	}
	f := cmd.Flags()
	f.BoolVar(&force, "force", false, "before its time")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&detach, "detach", false, "do not wait until it is done")
	jsonFlag(cmd, &asJSON)
	return tombstoneCommand(e, cmd, func(cmd *cobra.Command, o *operating, path []string) error {
		if !yes { // no question about a tombstone that does not exist
			if err := o.call(cmd.Context(), http.MethodGet, path, nil, nil, new(json.RawMessage)); err != nil {
				return err
			}
		}
		if err := e.confirm(cmd.Context(), yes, "Events are erased for good. Go on?"); err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.call(
			cmd.Context(), http.MethodPost, append(path, "execute"), nil, wire.ExecuteTombstone{Force: force}, &raw,
		); err != nil {
			return err
		}
		if !detach {
			var err error
			if raw, err = o.awaitTombstone(cmd.Context(), path, raw); err != nil {
				return err
			}
		}
		return printAs(e, raw, asJSON, printTombstone)
	})
}

// awaitTombstone shows how far an execution is until it is completed.
func (o *operating) awaitTombstone(ctx context.Context, path []string, raw json.RawMessage) (json.RawMessage, error) {
	e, system, told, waits := o.env, clock.System{}, "", ""
	draw := func(*wire.TombstoneProgress) {}
	if terminal(e.err) {
		bar := e.bar(-1, "erasing")
		defer func() { _ = bar.Finish() }() // it is decoration
		draw = func(p *wire.TombstoneProgress) {
			bar.Describe(p.Phase)
			if p.EventsTotal > 0 {
				bar.ChangeMax64(int64(p.EventsTotal))
				_ = bar.Set64(int64(p.EventsDone)) // it is decoration
			}
		}
	}
	for {
		shown, err := decoded[wire.TombstoneShown](raw)
		if err != nil || shown.Tombstone.Status == "completed" {
			return raw, err
		}
		if p := shown.Tombstone.Progress; p != nil {
			draw(p)
		}
		if now := waitOf(shown.Tombstone); now != waits {
			waits = now
			e.note("%s", now)
		}
		if fault := shown.Tombstone.Error; fault != nil && *fault != told {
			told = *fault
			e.note("A try has failed and is repeated: %s.\n", plain(told))
		}
		if err := system.Wait(ctx, system.Now().Add(pollTime)); err != nil {
			e.note("The erasure goes on in the background; 'j17 tombstone get' shows how far it is.\n")
			return nil, interrupted(ctx, err)
		}
		raw = nil
		if err := o.call(ctx, http.MethodGet, path, nil, nil, &raw); err != nil {
			return nil, err
		}
	}
}

func tombstoneStreamsCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "streams ID", Short: "List all streams that an erasure covers", Example: "  j17 tombstone streams tmb_4k7vx9tz2nqr8w3 --json",
	}
	jsonFlag(cmd, &asJSON)
	return tombstoneCommand(e, cmd, func(cmd *cobra.Command, o *operating, path []string) error {
		rows, err := o.rows(cmd.Context(), append(path, "streams"), nil, "streams", 0)
		if err != nil {
			return err
		}
		return printRows(e, rows, asJSON, []string{"key", "events", "root before", "root after"},
			func(s wire.AffectedStream) []string {
				return []string{s.Key, strconv.FormatUint(s.EventCount, 10), s.RootBefore, s.RootAfter}
			})
	})
}

func tombstoneCertificateCommand(e *env) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "certificate ID", Short: "Download the signed certificate of an erasure",
		Long: `Download the certificate of an erasure that is completed: what was erased, when and why, signed by the log of the environment. 'j17 audit
verify FILE' checks it without a server.`,
		Example: "  j17 tombstone certificate tmb_4k7vx9tz2nqr8w3 -o certificate.txt",
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write")
	return tombstoneCommand(e, cmd, func(cmd *cobra.Command, o *operating, path []string) error {
		return e.save(output, func(out io.Writer) error {
			body, _, err := o.Download(cmd.Context(), append(append([]string{"api"}, path...), "certificate"), nil)
			if err != nil {
				return o.explained(cmd.Context(), err)
			}
			_, err = io.Copy(out, body)
			return interrupted(cmd.Context(), errors.Join(err, body.Close()))
		})
	})
}
