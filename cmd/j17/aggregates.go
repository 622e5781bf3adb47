package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/wire"
)

func aggregatesCommand(e *env) *cobra.Command {
	return group(
		"aggregates", "The aggregates of an environment, and how their states came to be",
		aggregatesTypesCommand(e), aggregatesListCommand(e), aggregatesLengthCommand(e), aggregatesChangesCommand(e),
		aggregatesBlameCommand(e),
	)
}

func aggregatesTypesCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "types", Short: "List the aggregate types of an environment", Args: noArgs, Example: "  j17 aggregates types --env staging",
		Long: `List the aggregate types of an environment with the number of their aggregates, which counts to 10,000: those of the deployed spec, and behind them
those of earlier ones that have aggregates.`,
	}
	r := opsFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsCall(cmd.Context(), http.MethodGet, nil, "aggregates")
		if err != nil {
			return err
		}
		answer, err := decoded[struct {
			Types []json.RawMessage `json:"types"`
		}](raw)
		if err != nil {
			return err
		}
		return printRows(e, answer.Types, asJSON, []string{"type", "aggregates", "in the spec", "events"},
			func(t wire.AggregateType) []string {
				count, declared := strconv.Itoa(t.Count), "yes"
				if t.More {
					count += " or more"
				}
				if !t.Declared {
					declared = "no longer"
				}
				return []string{t.Type, count, declared, strings.Join(t.Events, ", ")}
			})
	}
	return cmd
}

// span is how much of a list is wanted: count things of it, or all.
type span struct {
	count uint64
	all   bool
}

// flags declares --count and --all for things of a kind.
func (s *span) flags(cmd *cobra.Command, things string) {
	const usual = 100
	cmd.Flags().Uint64Var(&s.count, "count", usual, "how many "+things+" at most")
	cmd.Flags().BoolVar(&s.all, "all", false, "all of them, however many")
}

// wanted returns how many are wanted, 0 for all.
func (s *span) wanted(cmd *cobra.Command, things string) (uint64, error) {
	switch {
	case s.all && cmd.Flags().Changed("count"):
		return 0, usageError{errors.New("--all and --count exclude each other")}
	case s.all:
		return 0, nil
	case s.count == 0:
		return 0, usageError{fmt.Errorf("--count must be 1 or more; --all prints all %s", things)}
	}
	return s.count, nil
}

// pages reads a list below an environment page by page, as much of it as is wanted (0 for all). take decodes a page and
// returns how many things of the list it has, and the parameters of the next page, nil on the last one. It reports
// whether the list has more.
func (o *operating) pages(
	ctx context.Context, path []string, query url.Values, most, wanted uint64,
	take func(raw json.RawMessage) (got int, next url.Values, err error),
) (more bool, err error) {
	path, err = o.opsPath(ctx, path...)
	for left := wanted; err == nil; {
		size := most
		if wanted > 0 {
			size = min(left, most)
		}
		query.Set("count", strconv.FormatUint(size, 10))
		var raw json.RawMessage
		if err = o.call(ctx, http.MethodGet, path, query, nil, &raw); err != nil {
			break
		}
		got, next, failed := take(raw)
		if failed != nil || next == nil {
			return false, failed
		}
		maps.Copy(query, next)
		if left -= min(uint64(got), left); wanted > 0 && left == 0 {
			return true, nil
		}
	}
	return false, err
}

func aggregatesListCommand(e *env) *cobra.Command {
	var prefix, start string
	var asJSON bool
	var much span
	cmd := &cobra.Command{
		Use: "list TYPE", Short: "List the aggregates of a type, by id", Args: exactly("TYPE"),
		Long: `List the aggregates of a type with their other names, the number of their events and the time of the last one, by id. With --prefix only those whose id,
handle or public id begins so.`,
		Example: "  j17 aggregates list order\n  j17 aggregates list order --prefix SHOP-12 --json",
	}
	r := opsFlags(cmd)
	cmd.Flags().StringVar(&prefix, "prefix", "", "only those whose id, handle or public id begins with this `text`")
	cmd.Flags().StringVar(&start, "start", "", "only those after this `id`")
	much.flags(cmd, "aggregates")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// What is asked for.
		wanted, err := much.wanted(cmd, "aggregates")
		if err != nil {
			return err
		}
		query := url.Values{}
		for name, v := range map[string]string{"prefix": prefix, "start": start} {
			if v != "" {
				query.Set(name, v)
			}
		}

		// Its pages.
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		const most = 1000
		rows := []json.RawMessage{}
		more, err := o.pages(cmd.Context(), []string{"aggregates", args[0]}, query, most, wanted,
			func(raw json.RawMessage) (int, url.Values, error) {
				page, err := decoded[struct {
					Aggregates []json.RawMessage `json:"aggregates"`
					Next       *string           `json:"next"`
				}](raw)
				rows = append(rows, page.Aggregates...)
				if err != nil || page.Next == nil {
					return 0, nil, err
				}
				return len(page.Aggregates), url.Values{"start": {*page.Next}}, nil
			})
		if err != nil {
			return err
		}

		if more {
			e.note("There are more than these; --count says how many are shown, --all shows all.\n")
		}
		return printRows(e, rows, asJSON, []string{"id", "handle", "public id", "length", "updated"},
			func(a wire.AggregateRow) []string {
				return []string{a.ID, a.Handle, a.PublicID, strconv.FormatUint(a.Length, 10), when(a.UpdatedAt)}
			})
	}
	return cmd
}

func aggregatesLengthCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "length TYPE/ID", Short: "Print how many events an aggregate has", Args: exactly("TYPE/ID"), ValidArgsFunction: completeKeys(e, false),
		Long:    "Print how many events an aggregate has, 0 where there are none.",
		Example: "  j17 aggregates length order/7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05",
	}
	r := remoteFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		c, err := e.reader(cmd, r)
		if err != nil {
			return err
		}
		n, err := c.Length(cmd.Context(), key)
		if err != nil {
			return c.explained(cmd.Context(), err)
		}
		if asJSON {
			return e.printJSON(wire.Length{Length: n})
		}
		_, err = fmt.Fprintln(e.out, n)
		return err
	}
	return cmd
}

func aggregatesChangesCommand(e *env) *cobra.Command {
	var from uint64
	var asJSON bool
	var much span
	cmd := &cobra.Command{
		Use: "changes TYPE/ID", SuggestFor: []string{"history", "log"},
		Short: "Show what each version of an aggregate changed in its state", Args: exactly("TYPE/ID"), ValidArgsFunction: completeKeys(e, false),
		Long: `Show what each version of an aggregate changed in its state: a line for each place, with the value before and after and the operation of the handler
that made the change, as a pointer into the spec. Values are cut; --json has up to 512 bytes of each, and the events.

Exit code 6: there is no such aggregate.`,
		Example: "  j17 aggregates changes order/7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05 --from 7 --count 1",
	}
	r := opsFlags(cmd)
	cmd.Flags().Uint64Var(&from, "from", 1, "the first `version`, counted from 1")
	much.flags(cmd, "versions")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		wanted, err := much.wanted(cmd, "versions")
		if err != nil {
			return err
		}
		if from == 0 {
			return usageError{errors.New("--from must be 1 or more: versions are counted from 1")}
		}

		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		const most = 100
		rows := []json.RawMessage{}
		query := url.Values{"from": {strconv.FormatUint(from, 10)}}
		more, err := o.pages(cmd.Context(), aggregatePath(key, "changes"), query, most, wanted,
			func(raw json.RawMessage) (int, url.Values, error) {
				page, err := decoded[struct {
					Changes []json.RawMessage `json:"changes"`
					Next    *uint64           `json:"next"`
				}](raw)
				rows = append(rows, page.Changes...)
				if err != nil || page.Next == nil {
					return 0, nil, err
				}
				return len(page.Changes), url.Values{"from": {strconv.FormatUint(*page.Next, 10)}}, nil
			})
		if err != nil {
			return err
		}
		if more {
			e.note("There are more versions than these; --from and --count say which are shown, --all shows all.\n")
		}
		if asJSON {
			return e.printJSON(rows)
		}
		return printChanges(e, rows)
	}
	return cmd
}

// aggregatePath is where an aggregate is below its environment.
func aggregatePath(key j17.Key, more ...string) []string {
	return append([]string{"aggregates", key.Type, key.ID}, more...)
}

// printChanges prints a line for each change of each version.
func printChanges(e *env, raw []json.RawMessage) error {
	versions, err := decodeRows[wire.VersionChanges](raw)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, v := range versions {
		var ev struct {
			StreamID string `json:"stream_id"`
			Type     string `json:"type"`
		}
		if err := json.Unmarshal(v.Event, &ev); err != nil {
			return fmt.Errorf("the server sent an event that cannot be read: %w", err)
		}
		about := []string{strconv.FormatUint(v.Length, 10), ev.StreamID, ev.Type}
		row := func(more ...string) { rows = append(rows, append(append([]string{}, about...), more...)) }
		for _, c := range v.Changes {
			row(c.Pointer, brief(c.Before), brief(c.After), c.Operation)
		}
		switch {
		case v.More > 0:
			row(fmt.Sprintf("and %d more", v.More))
		case len(v.Changes) == 0:
			row("nothing")
		}
	}
	return e.printTable([]string{"version", "event", "type", "changed", "before", "after", "operation"}, rows)
}

// brief is a value for a column of a table.
func brief(text string) string {
	const most = 40
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

func aggregatesBlameCommand(e *env) *cobra.Command {
	var length uint64
	var asJSON bool
	cmd := &cobra.Command{
		Use: "blame TYPE/ID", Short: "Show which version and event set each member of a state last", Args: exactly("TYPE/ID"), ValidArgsFunction: completeKeys(e, false),
		Long: `Show for each leaf of the state of an aggregate, now or after so many events, which version and event set it last: 5,000 leaves at most.

Exit code 6: there is no such aggregate.`,
		Example: "  j17 aggregates blame order/7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05 --length 7",
	}
	r := opsFlags(cmd)
	cmd.Flags().Uint64Var(&length, "length", 0, "the state after the first `n` events")
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		query := url.Values{}
		if cmd.Flags().Changed("length") {
			query.Set("length", strconv.FormatUint(length, 10))
		}
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		raw, err := o.opsRead(cmd.Context(), query, aggregatePath(key, "blame")...)
		if err != nil {
			return err
		}
		return printAs(e, raw, asJSON, func(e *env, b wire.Blame) error {
			rows := make([][]string, len(b.Blame))
			for i, leaf := range b.Blame {
				rows[i] = []string{leaf.Pointer, strconv.FormatUint(leaf.Length, 10), leaf.StreamID}
			}
			if b.Truncated {
				e.note("The state has more members than these.\n")
			}
			return e.printTable([]string{"member", "version", "event"}, rows)
		})
	}
	return cmd
}
