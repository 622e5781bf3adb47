package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"j17/internal/base/clock"
	"j17/internal/base/wire"
	"j17/internal/edge/client"
)

func stateCommand(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Read the states of aggregates",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(stateGetCommand(e))
	return cmd
}

func stateGetCommand(e *env) *cobra.Command {
	var at string
	var length uint64
	var synchronous, asJSON bool
	cmd := &cobra.Command{
		Use:   "get TYPE/ID",
		Short: "Print the state of an aggregate, now or in the past",
		Long: `Print the state of an aggregate as JSON: with line breaks on a terminal, on one line elsewhere.

Exit code 6: the aggregate has no events, or had none yet at the time or length asked for.`,
		Example: `  j17 state get counter/global
  j17 state get order/7c0f6a38-91b2-4d6e-8f57-2b4e1a9c3d05 --at 2026-01-31T12:00:00Z
  j17 state get counter/global --at 10m`,
		Args: exactly("TYPE/ID"), ValidArgsFunction: completeKeys(e, false),
	}

	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&at, "at", "", "the state at a `time`: 2026-01-31T12:00:00Z, 2026-01-31 (its beginning, UTC), 10m (so long ago), or Unix seconds")
	f.Uint64Var(&length, "length", 0, "the state after the first `n` events")
	f.BoolVar(&synchronous, "synchronous", false, "compute the state from the first event on")
	f.BoolVar(&asJSON, "json", false, "print one line with the metadata too")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// Which state: the present one, at a time, or after so many events.
		key, err := parseKey(args[0])
		if err != nil {
			return err
		}
		o := client.StateOptions{Synchronous: synchronous}
		if f.Changed("at") && f.Changed("length") {
			return usageError{errors.New("--at and --length exclude each other")}
		}
		if f.Changed("at") {
			seconds, err := parseTime(clock.System{}.Now(), "--at", at)
			if err != nil {
				return usageError{err}
			}
			o.At = strconv.FormatInt(seconds, 10)
		}
		if f.Changed("length") {
			o.Length = &length
		}

		c, err := e.reader(cmd, r)
		if err != nil {
			return err
		}
		s, err := c.State(cmd.Context(), key, o)
		if err != nil {
			return c.explained(cmd.Context(), err)
		}
		return printState(e, s, asJSON)
	}
	return cmd
}

func printState(e *env, s client.State, asJSON bool) error {
	var b bytes.Buffer
	switch {
	case asJSON:
		fmt.Fprintf(&b, `{"data":%s,"metadata":%s}`, s.Data, s.Metadata)
	case terminal(e.out):
		if err := json.Indent(&b, s.Data, "", "  "); err != nil {
			return err
		}
	default:
		b.Write(s.Data)
	}
	b.WriteByte('\n')
	_, err := e.out.Write(b.Bytes())
	return err
}

// parseTime reads Unix seconds, RFC 3339, a day, which is its beginning in UTC, or how long before now. A state is that
// of the end of the second, so fractions are left out. flag is the flag that the time was given with.
func parseTime(now time.Time, flag, s string) (int64, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 {
			return 0, fmt.Errorf("%s cannot be %d: no state is older than 1970, from which on Unix seconds are counted", flag, n)
		}
		if wire.LooksLikeMilliseconds(n) {
			return 0, fmt.Errorf("%s %d looks like milliseconds: give Unix seconds, such as %d", flag, n, n/1000)
		}
		return n, nil
	}
	t, err := time.Parse(time.RFC3339, strings.ToUpper(s))
	if err != nil {
		t, err = time.Parse(time.DateOnly, s)
	}
	if ago, agoErr := time.ParseDuration(s); err != nil && agoErr == nil {
		if ago < 0 {
			return 0, fmt.Errorf("%s cannot be %s: it says how long ago, as in 10m", flag, s)
		}
		t, err = now.Add(-ago), nil
	}
	if err != nil {
		return 0, fmt.Errorf("%s %q is no time: give RFC 3339, such as 2026-01-31T12:00:00Z, a day, such as 2026-01-31, how long ago, such as 10m, or Unix seconds", flag, s)
	}
	if t.Unix() < 0 {
		return 0, fmt.Errorf("%s cannot be %s: no state is older than 1970", flag, s)
	}
	return t.Unix(), nil
}
