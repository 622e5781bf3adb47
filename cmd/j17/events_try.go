package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
)

// tryWrite prints what a write would do, which try asks the server. Where the write would be refused, the exit code is
// that of the refusal.
func tryWrite(
	ctx context.Context, e *env, r *remote, asJSON bool, try func(*client.Client) (json.RawMessage, error),
) error {
	c, err := e.connect(r)
	if err != nil {
		return err
	}
	raw, err := try(c)
	if err != nil {
		return interrupted(ctx, refusedEvent(explained(e, err)))
	}
	tried, err := decoded[wire.WriteDryRun](raw)
	if err != nil {
		return err
	}
	if asJSON {
		_, err = e.out.Write(append(raw, '\n')) // "ok" is a part of the answer here
	} else {
		err = printTriedWrite(e, &tried)
	}
	if err != nil || len(tried.Refusals) == 0 {
		return err
	}
	first := &tried.Refusals[0]
	return silent{refusedEvent(&j17.Error{Code: first.Code, Message: first.Error, Path: first.Path})}
}

// printTriedWrite shows what a write would do.
func printTriedWrite(e *env, t *wire.WriteDryRun) error {
	var b strings.Builder
	for i := range t.Refusals {
		describeRefusal(&b, &t.Refusals[i])
	}
	switch {
	case t.Accepted && len(t.Events) == 0:
		b.WriteString("Nothing would be written: it was before, with the same idempotency key\n")
	case t.Accepted:
		b.WriteString("It would be written:\n")
		if err := describeTriedEvents(&b, t.Events, "  "); err != nil {
			return err
		}
	}

	// What it leads to.
	for i := range t.States {
		fmt.Fprintf(
			&b, "%s would have %s: %s\n", plain(t.States[i].Key),
			j17.Count(int(min(t.States[i].Length, 1<<31)), "event"), shownData(t.States[i].Data),
		)
	}
	for i := range t.Scheduled {
		describeLater(&b, "To come at", &t.Scheduled[i])
	}
	for i := range t.Canceled {
		describeLater(&b, "Cancelled, of", &t.Canceled[i])
	}
	for _, g := range t.Sagas {
		fmt.Fprintf(&b, "The saga %s would be %s, because of %s of %s\n", plain(g.Type), plain(g.Status), plain(g.By.EventType), plain(g.By.Key))
	}
	if t.Truncated {
		b.WriteString("Some data are left out, since all of it is too much\n")
	}
	_, err := io.WriteString(e.out, b.String())
	return err
}

// describeRefusal adds a line that says why a write would be refused.
func describeRefusal(b *strings.Builder, r *wire.Refusal) {
	fmt.Fprintf(b, "It would be refused: %s (%s", plain(r.Error), r.Code)
	if r.Path != "" {
		b.WriteString(" at " + plain(r.Path))
	}
	if r.WriteIndex != nil {
		fmt.Fprintf(b, ", writes[%d]", *r.WriteIndex)
	}
	b.WriteString(")\n")
	for _, f := range r.Errors {
		fmt.Fprintf(b, "  %s: %s\n", plain(f.Pointer), plain(f.Message))
	}
	if more := detailed(r.Code, r.Details); more != "" {
		b.WriteString("  " + more + "\n")
	}
}

// describeTriedEvents adds events, each with those that it implies below it.
func describeTriedEvents(b *strings.Builder, events []wire.TriedEvent, indent string) error {
	for i := range events {
		ev := &events[i]
		fmt.Fprintf(b, "%s%s %s %s\n", indent, plain(ev.Key), plain(ev.Type), shownData(ev.Data))
		for _, raw := range ev.Implied {
			implied, err := decoded[wire.TriedEvent](raw)
			if err != nil {
				return err
			}
			if err := describeTriedEvents(b, []wire.TriedEvent{implied}, indent+"  "); err != nil {
				return err
			}
		}
	}
	return nil
}

func describeLater(b *strings.Builder, what string, l *wire.TriedLater) {
	fmt.Fprintf(
		b, "%s %s: %s:%s %s %s\n", what, plain(l.FireAt), plain(l.Emit.AggregateType), plain(l.Emit.ID),
		plain(l.Emit.EventType), shownData(l.Emit.Data),
	)
}

// shownData is JSON for people, "…" where it was left out.
func shownData(raw json.RawMessage) string {
	if raw == nil {
		return "…"
	}
	return plain(string(raw))
}
