package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
)

func overviewCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "overview", Short: "Show what goes on in an environment", Args: noArgs,
		Example: "  j17 overview --env staging",
		Long: `Show what goes on in an environment: how many events were written in the last hour, who follows them and how far, what is due, and what was kept
last. What your role may not read is left out.`,
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsCall(cmd.Context(), http.MethodGet, nil, "overview")
		if err != nil {
			return err
		}
		return printAs(e, raw, asJSON, printOverview)
	}
	return cmd
}

// printOverview prints what goes on, and then what follows the events.
func printOverview(e *env, o wire.Overview) error {
	hour := int64(0)
	for _, n := range o.Rates {
		hour += n
	}
	facts := [][]string{
		{"position", o.Position},
		{"events", strconv.FormatUint(o.Events, 10)},
		{"last hour", strconv.FormatInt(hour, 10)},
	}
	if s := o.Spec; s != nil {
		facts = append(facts, []string{"spec", fmt.Sprintf("version %d, %s", s.Version, moment(s.DeployedAt))})
	}
	if s := o.Schedule; s != nil {
		due := "nothing is due"
		if s.NextDue != nil {
			due = fmt.Sprintf("next %s, %d today, %d overdue", moment(*s.NextDue), s.DueToday, s.Overdue)
		}
		facts = append(facts, []string{"schedule", due})
	}
	if s := o.Sagas; s != nil {
		facts = append(facts, []string{"sagas", fmt.Sprintf("%d running, %d queued", s.Running, s.Queued)})
	}
	if b := o.Backup; b != nil && *b != nil {
		facts = append(facts, []string{"backup", moment((*b).CompletedAt)})
	}
	if c := o.RootCheckpoint; c != nil && *c != nil {
		facts = append(facts, []string{"root checkpoint", moment((*c).CreatedAt)})
	}
	for _, b := range o.Builds {
		facts = append(facts, []string{"build", fmt.Sprintf("%s %s, %d of %d", b.Kind, b.Name, b.Done, b.Total)})
	}
	if err := e.printTable([]string{"what", "is"}, facts); err != nil {
		return err
	}
	consumers := make([][]string, len(o.Consumers))
	for i, c := range o.Consumers {
		consumers[i] = []string{c.Kind, c.Name, c.Status, strconv.FormatUint(c.Lag, 10)}
	}
	return e.printFurther([]string{"consumer", "name", "status", "behind"}, consumers)
}

func attentionCommand(e *env) *cobra.Command {
	return group(
		"attention", "What waits for a person, by its cause", attentionListCommand(e), attentionRetryCommand(e),
	)
}

func attentionListCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List all that waits for a person in an environment, by its cause", Args: noArgs,
		Example: "  j17 attention list --env prod",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsCall(cmd.Context(), http.MethodGet, nil, "attention")
		if err != nil {
			return err
		}
		return printAs(e, raw, asJSON, printAttention)
	}
	return cmd
}

func printAttention(e *env, all wire.AttentionList) error {
	rows := make([][]string, len(all.Attention))
	for i, a := range all.Attention {
		count := strconv.Itoa(a.Count)
		if a.More {
			count += " or more"
		}
		rows[i] = []string{
			a.Kind, a.Cause, count, momentOrNone(a.Since), momentOrNone(a.Newest), strings.Join(a.Actions, ", "),
		}
	}
	return e.printTable([]string{"kind", "cause", "count", "since", "newest", "actions"}, rows)
}

// momentOrNone is a time for people, "" for none.
func momentOrNone(at *time.Time) string {
	if at == nil {
		return ""
	}
	return moment(*at)
}

func attentionRetryCommand(e *env) *cobra.Command {
	var asJSON, dry bool
	cmd := &cobra.Command{
		Use: "retry KIND CAUSE", Short: "Retry all that waits for one cause", Args: exactly("KIND", "CAUSE"),
		Long: `Retry all scheduled events, sagas or deliveries that wait for one cause, as 'j17 attention list' shows it: KIND is scheduled, saga or delivery. At most
1,000 are retried, one after the other, in the background. With --dry-run they are only counted.

Exit code 6: nothing waits for this cause.`,
		Example: "  j17 attention retry scheduled 'validation_failed order.was_reminded' --dry-run",
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only count them")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsCall(
			cmd.Context(), http.MethodPost, wire.AttentionRetry{Kind: args[0], Cause: args[1], DryRun: dry},
			"attention", "retry",
		)
		if err != nil {
			return err
		}
		return printAs(e, raw, asJSON, onOneLine(func(a wire.AttentionRetried) string {
			if dry {
				return fmt.Sprintf("%d would be tried again.", a.Count)
			}
			return fmt.Sprintf("%d are tried again.", a.Count)
		}))
	}
	return cmd
}
