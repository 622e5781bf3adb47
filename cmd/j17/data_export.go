package main

import (
	"bytes"
	"errors"
	"io"
	"net/url"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

func (e *env) eventsExport() *cobra.Command {
	var output string
	query := struct{ of, typ, after string }{}
	cmd := &cobra.Command{
		Use: "export", Short: "Download all events of an environment", Args: noArgs,
		Long: `Download all events of an environment, one a line in the order in which they were stored, to standard output or to a file that
does not exist yet. It needs an operator who may read them (see j17 login). What was downloaded can be imported into another
environment, as history, with POST /_admin/import.`,
		Example: "  j17 events export -o events.jsonl --env prod\n  j17 events export --of aggregates --type order",
	}
	r := serverFlags(cmd)
	instanceFlag(cmd, r)
	environmentFlag(cmd, r)
	f := cmd.Flags()
	f.StringVarP(&output, "output", "o", "", "`file` to write")
	f.StringVar(&query.of, "of", "", "events, or aggregates: the present state of each (default events)")
	f.StringVar(&query.typ, "type", "", "one aggregate `type` only")
	f.StringVar(&query.after, "after", "", "`stream id`: only events after it")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		ctx := cmd.Context()
		o, err := e.operate(cmd, r)
		if err != nil {
			return err
		}
		path, err := o.opsPath(ctx, "export")
		if err != nil {
			return err
		}
		q := url.Values{}
		for name, v := range map[string]string{"of": query.of, "type": query.typ, "after": query.after} {
			if v != "" {
				q.Set(name, v)
			}
		}
		body, _, err := o.Download(ctx, append([]string{"api"}, path...), q)
		if err != nil {
			return o.explained(ctx, err)
		}
		defer func() { err = interrupted(ctx, errors.Join(err, body.Close())) }()
		lines := &lineTally{}
		if output != "" && terminal(e.err) {
			lines.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(e.terminalErr()), progressbar.OptionShowCount(), progressbar.OptionSetDescription("lines"),
				progressbar.OptionThrottle(barInterval), progressbar.OptionClearOnFinish())
		}
		err = e.save(output, func(out io.Writer) error {
			_, err := io.Copy(io.MultiWriter(out, lines), body)
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("the server broke the export off: it is not whole. Try again")
			}
			return err
		})
		if lines.bar != nil {
			_ = lines.bar.Finish() // it is decoration
		}
		if err == nil && output != "" {
			e.note("%s in %s.\n", count(lines.n, "line"), fileName(output))
		}
		return err
	}
	return cmd
}

// lineTally counts the lines that are written to it.
type lineTally struct {
	n   int
	bar *progressbar.ProgressBar
}

// Write counts.
func (l *lineTally) Write(p []byte) (int, error) {
	n := bytes.Count(p, []byte{'\n'})
	l.n += n
	if l.bar != nil {
		_ = l.bar.Add(n) // it is decoration
	}
	return len(p), nil
}
