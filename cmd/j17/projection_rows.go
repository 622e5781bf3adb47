package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/value"
	"j17/internal/edge/client"
)

func projectionRowsCommand(e *env) *cobra.Command {
	var order string
	var filters []string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rows NAME", SuggestFor: []string{"query", "search", "find"}, Short: "Print the rows of a projection",
		Args: exactly("NAME"),
		Long: `Print the rows of a projection, page by page: as a table, or with --json one object a line. Filters and orders are those of lists, as an
index serves them.

Exit code 6: there is no such projection.`,
		Example: `  j17 projection rows tickets
  j17 projection rows tickets --filter team=red --filter points.gte=10 --order -points
  j17 projection rows shops --filter near=40.7,-74.0 --filter radius=5000 --limit 0 --json`,
	}
	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&filters, "filter", nil, "a filter, as `name=value`; can be repeated")
	f.StringVar(&order, "order", "", "the `field` by which rows come, with '-' before it for the reverse")
	f.IntVar(&limit, "limit", 100, "at most this `number` of rows; 0 for all")
	f.BoolVar(&asJSON, "json", false, "print one row a line")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{}
		for _, filter := range filters {
			name, v, ok := strings.Cut(filter, "=")
			if !ok || name == "" || q.Has(name) {
				return usageError{fmt.Errorf("--filter %q is no filter: give name=value, each name once", filter)}
			}
			if name == "count" || name == "start" {
				return usageError{fmt.Errorf("--filter %s=... is no filter: pages follow each other by themselves, and --limit says how many rows there are at most", name)}
			}
			q.Set(name, v)
		}
		if order != "" {
			q.Set("order", order)
		}
		return printPages(e, cmd, r, limit, asJSON, q, func(c *client.Client, q url.Values) (client.RowPage, error) {
			page, err := c.ProjectionRows(cmd.Context(), args[0], q)
			return page, withoutRows(args[0], err)
		})
	}
	return cmd
}

// printPages prints up to so many rows, 0 for all, a page at a time. q selects the rows.
func printPages(e *env,
	cmd *cobra.Command, r *remote, limit int, asJSON bool, q url.Values,
	read func(*client.Client, url.Values) (client.RowPage, error),
) error {
	if limit < 0 {
		return usageError{errors.New("--limit must be 0 or more")}
	}
	c, err := e.connect(r)
	if err != nil {
		return err
	}
	const page = 1000
	for printed := 0; ; {
		count := page
		if limit > 0 {
			count = min(page, limit-printed)
		}
		q.Set("count", strconv.Itoa(count))
		rows, err := read(c, q)
		if err != nil {
			return interrupted(cmd.Context(), err)
		}
		if err := printRowsOf(e, rows.Rows, asJSON); err != nil {
			return err
		}
		printed += len(rows.Rows)
		if rows.Next == "" || printed == limit {
			return nil
		}
		q.Set("start", rows.Next)
	}
}

// withoutRows says what to call for a projection that has no rows. The server refuses the number of rows there, which
// the command has set itself.
func withoutRows(name string, err error) error {
	refused, ok := errors.AsType[*client.Error](err)
	if !ok || refused.Problem.Code != j17.CodeInvalidParameter || refused.Problem.Path != "count" {
		return err
	}
	said, problem := *refused, *refused.Problem
	problem.Path = ""
	problem.Message = "The projection '" + j17.Printable(name) + "' has no rows: it is not for each aggregate of a type. Read it with its parameters: j17 projection get " + j17.Printable(name) + " --param name=value"
	said.Problem = &problem
	return &said
}

// printRowsOf prints rows: one a line, or as a table that has columns for their names, how far away they are and where,
// if they say so, and one for each member of the data of the first row that has any.
func printRowsOf(e *env, rows []json.RawMessage, asJSON bool) error {
	if asJSON {
		for _, row := range rows {
			if _, err := e.out.Write(append(row, '\n')); err != nil {
				return err
			}
		}
		return nil
	}
	all := make([]value.Value, 0, len(rows))
	var first value.Value
	for _, raw := range rows {
		row, err := value.Parse(raw)
		if err != nil {
			return err
		}
		if all = append(all, row); first.IsMissing() && !row.Get("data").IsMissing() {
			first = row
		}
	}
	if first.IsMissing() && len(all) > 0 {
		first = all[0]
	}

	// The columns, and the rows.
	header := []string{"id"}
	for _, name := range []string{"handle", "public_id", "distance", "location"} {
		if !first.Get(name).IsMissing() {
			header = append(header, name)
		}
	}
	own := len(header)
	for _, m := range first.Get("data").Members() {
		header = append(header, m.Key)
	}
	cells := make([][]string, 0, len(all))
	for _, row := range all {
		line := make([]string, 0, len(header)+1)
		for _, name := range header[:own] {
			line = append(line, cellOf(name, row.Get(name)))
		}
		for _, name := range header[own:] {
			line = append(line, cellOf("", row.Get("data").Get(name)))
		}
		if says := row.Get("error").Get("error"); !says.IsMissing() {
			line = append(line, says.Str())
		}
		cells = append(cells, line)
	}
	return e.printTable(header, cells)
}

// cellOf returns a value as a table shows it; a row's own members are recognised by their names.
func cellOf(name string, v value.Value) string {
	switch {
	case name == "distance":
		metres, err := strconv.ParseFloat(v.String(), 64)
		if err != nil {
			return v.String()
		}
		return strconv.FormatFloat(metres, 'f', 1, 64)
	case name == "location" && v.Kind() == value.Object:
		return v.Get("lat").String() + "," + v.Get("lng").String()
	}
	switch v.Kind() { //nolint:exhaustive // the others are shown as JSON
	case value.String:
		return v.Str()
	case value.Missing, value.Null:
		return ""
	default:
		return v.String()
	}
}
