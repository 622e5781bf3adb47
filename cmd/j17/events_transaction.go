package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/command"
	"j17/internal/edge/client"
)

func eventsTransactionCommand(e *env) *cobra.Command {
	var idempotencyKey string
	var dryRun, asJSON bool
	cmd := &cobra.Command{
		Use:   "transaction FILE",
		Short: "Write events of several aggregates, all or none",
		Long: `Write events of several aggregates in one commit: all of them, or none. FILE is the JSON of the request, - is standard input:

  {"writes": [{"key": "order:_new", "as": "order", "events": [{"type": "was_placed", "data": {...}}]},
              {"key": "customer:...", "events": [{"type": "had_order", "data": {"order": "$.new.order"}}]}],
   "metadata": {"actor": {"type": "user", "id": "..."}}}

"$.new.order" stands for the id that the server chooses for the write with "as": "order".

A lost connection does no harm: the request is repeated with the same idempotency key, and is carried out once.

With --dry-run the server tells what the transaction would do, and nothing is stored: its events with all that they imply, the
states afterwards, or why it would be refused. The exit code is that of the write.

Exit code 3: an event is refused, 4: an aggregate has changed, 6: there is no such type or aggregate.`,
		Example: `  j17 events transaction transfer.json
  j17 events transaction transfer.json --dry-run`,
		Args: exactly("FILE"),
	}

	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&idempotencyKey, "idempotency-key", "", "the same `key` with the same file writes once within 24 hours; one is made up if left out")
	f.BoolVar(&dryRun, "dry-run", false, "tell what would happen, and write nothing")
	f.BoolVar(&asJSON, "json", false, "print JSON")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		raw, err := e.readText(args[0], command.MaxFileText, "No transaction can be that large.")
		if err != nil {
			return err
		}
		if _, err := parsedJSON(e, args[0], string(raw)); err != nil {
			return err
		}
		o := client.TransactionOptions{IdempotencyKey: idempotencyKey}
		if dryRun {
			return tryWrite(cmd.Context(), e, r, asJSON, func(c *client.Client) (json.RawMessage, error) {
				return c.TryTransaction(cmd.Context(), raw, o)
			})
		}
		c, err := e.connectToWrite(r)
		if err != nil {
			return err
		}
		if o.IdempotencyKey == "" {
			o.IdempotencyKey = "cli-" + rand.Text()
		}

		// From here on the events may have been stored, even if the command fails.
		e.startChange()
		receipt, err := c.Transaction(cmd.Context(), raw, o)
		if err != nil {
			return interrupted(cmd.Context(), refusedEvent(explained(e, err)))
		}
		return printTransaction(e, &receipt, asJSON)
	}
	return cmd
}

func printTransaction(e *env, r *client.TransactionReceipt, asJSON bool) error {
	e.reportChange("the transaction is stored, %s", j17.Count(r.Count, "event"))
	if asJSON {
		return json.NewEncoder(e.out).Encode(struct {
			wire.TransactionWritten

			Replayed bool `json:"replayed,omitempty"`
		}{r.TransactionWritten, r.Replayed})
	}
	was := "stored"
	if r.Replayed {
		was = "had been stored before"
	}
	for _, w := range r.Writes {
		text := plain(w.Key)
		if names := slices.DeleteFunc(
			[]string{w.As, w.Handle, w.PublicID}, func(s string) bool { return s == "" },
		); len(names) > 0 {
			text += " (" + plain(strings.Join(names, ", ")) + ")"
		}
		if _, err := fmt.Fprintf(
			e.out, "%s %s as %s; length %d\n", text, was, strings.Join(w.StreamIDs, ", "), w.Length,
		); err != nil {
			return err
		}
	}
	if r.ImpliedCount > 0 {
		_, err := fmt.Fprintln(e.out, "implied "+j17.Count(r.ImpliedCount, "event"))
		return err
	}
	return nil
}
