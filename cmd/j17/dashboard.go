package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"j17/internal/base/wire"
	"j17/internal/server"
)

// dashboardFlags are those of the servers that have a dashboard.
func dashboardFlags(f *pflag.FlagSet, o *server.Options) {
	f.BoolVar(&o.NoDashboard, "no-dashboard", false, "leave the dashboard out")
	f.StringVar(&o.PublicPath, "public-path", "", "`path` below which a proxy has the server, such as /j17")
}

func dashboardCommand(e *env) *cobra.Command {
	var open, asJSON bool
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Print a link that signs in to the dashboard once",
		Long: `Print a link that signs you in to the dashboard of the server of the context, once and within an hour. The code in it is behind
the '#', which browsers send to nobody.`,
		Example: `  j17 dashboard
  j17 dashboard --open`,
		Args: noArgs,
	}
	r := serverFlags(cmd)
	cmd.Flags().BoolVar(&open, "open", false, "open it in the browser as well")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.call(cmd.Context(), http.MethodPost, []string{"me", "login_codes"}, nil, nil, &raw); err != nil {
			return err
		}
		var got wire.LoginCode
		if err := json.Unmarshal(raw, &got); err != nil {
			return err
		}
		if asJSON {
			return e.printAnswer(raw)
		}
		if _, err := fmt.Fprintln(e.out, got.Link); err != nil {
			return err
		}
		if open {
			return openBrowser(cmd, got.Link)
		}
		return nil
	}
	return cmd
}

func sessionsCommand(e *env) *cobra.Command {
	return group("sessions", "Where you are signed in to the dashboard", sessionsListCommand(e), sessionsEndCommand(e))
}

func sessionsListCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "list", Short: "List your own sessions in browsers", Example: "  j17 sessions list", Args: noArgs,
	}
	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		var got struct {
			Sessions []json.RawMessage `json:"sessions"`
		}
		if err := o.call(cmd.Context(), http.MethodGet, []string{"me", "sessions"}, nil, nil, &got); err != nil {
			return err
		}
		return printRows(e, got.Sessions, asJSON, []string{"id", "begun", "used", "ends", "address"},
			func(s wire.Session) []string {
				return []string{s.ID, when(s.CreatedAt), when(s.UsedAt), when(s.ExpiresAt), s.Address}
			})
	}
	return cmd
}

func sessionsEndCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "end ID", Short: "Sign out one of your browsers", Example: "  j17 sessions end 4f1d2c9a0b7e6638",
		Args: exactly("ID"),
	}
	r := serverFlags(cmd)
	jsonFlag(cmd, &asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := operate(e, cmd, r)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := o.call(
			cmd.Context(), http.MethodDelete, []string{"me", "sessions", args[0]}, nil, nil, &raw,
		); err != nil {
			return err
		}
		if asJSON {
			return e.printAnswer(raw)
		}
		_, err = fmt.Fprintf(e.out, "The session %s has ended.\n", args[0])
		return err
	}
	return cmd
}

// openBrowser opens a link with the program of the system for links.
func openBrowser(cmd *cobra.Command, link string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	//nolint:gosec // one of two programs, and a link that the server has made
	if err := exec.CommandContext(cmd.Context(), program, link).Run(); err != nil {
		return errors.New("the browser could not be opened: " + err.Error() + ". Open the link yourself")
	}
	return nil
}
