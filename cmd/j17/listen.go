package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/base/clock"
	"j17/internal/base/ident"
	"j17/internal/edge/client"
	"j17/internal/follow/listener"
	"j17/internal/follow/outbound"
	"j17/internal/lang/spec"
)

// listenReady is the first line of 'j17 listen --json'.
type listenReady struct {
	Ready     bool   `json:"ready"`
	ForwardTo string `json:"forward_to"`
	Secret    string `json:"secret"`
}

// listened is the outcome of forwarding an event.
type listened struct {
	StreamID string `json:"stream_id"`
	Key      string `json:"key"`
	Type     string `json:"type"`
	// Status is 0 where there was no answer.
	Status int    `json:"status"`
	Error  string `json:"error,omitempty"`
}

func listenCommand(e *env) *cobra.Command {
	var to, after string
	var patterns []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "listen --forward-to URL",
		Short: "Forward the events of an environment to an address of this machine",
		Long: `Post the events of an environment, as they are written, to an address that the server cannot reach, until Ctrl-C: signed like the
deliveries of a listener, with a secret that stays the same for the data folder or context. Each event is sent once, whatever
is answered.`,
		Example: `  j17 listen --forward-to http://localhost:3000/hooks
  j17 listen --forward-to http://localhost:3000/hooks --events 'order.*' --events note.was_written --after 0`,
		Args: noArgs,
	}

	r := remoteFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&to, "forward-to", "", "`URL` to post events to")
	f.StringArrayVar(&patterns, "events", nil, "only events of this `pattern`: type.event, type.* or *; may be given more than once")
	f.StringVar(&after, "after", "", "begin after the event with this `stream_id`; 0 for the first one")
	jsonFlag(cmd, &asJSON)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		fwd := &listener.Forward{URL: to, Mint: ident.NewMinter(clock.System{}.Now)}
		if u, err := url.Parse(to); to == "" || err != nil || u.Host == "" ||
			u.Scheme != "http" && u.Scheme != "https" {
			return usageError{fmt.Errorf("--forward-to must be a URL such as http://localhost:3000/hooks, not %q", to)}
		}
		for _, text := range patterns {
			p, ok := spec.ParsePattern(text)
			if !ok {
				return usageError{fmt.Errorf("--events takes type.event, type.* or *, not %q", text)}
			}
			fwd.Patterns = append(fwd.Patterns, p)
		}
		s, err := e.connection(r)
		if err != nil {
			return err
		}
		t, err := s.target()
		if err != nil {
			return err
		}
		want, err := s.environment()
		if err != nil {
			return err
		}
		u, err := s.address()
		if err != nil {
			return err
		}
		fwd.Environment = environmentOf(cmp.Or(t.host, u.Hostname()), want)
		if fwd.Secret, err = listenSecret(e, s); err != nil {
			return err
		}
		c, err := e.connect(r)
		if err != nil {
			return err
		}
		return forwardEvents(cmd.Context(), e, c, fwd, after, asJSON)
	}
	return cmd
}

// forwardEvents sends events on until the context ends.
func forwardEvents(
	ctx context.Context, e *env, c *client.Client, fwd *listener.Forward, after string, asJSON bool,
) error {
	var told error
	ready := func() {
		if asJSON {
			//nolint:gosec // G117: whoever runs it needs the secret to check signatures
			told = json.NewEncoder(e.out).Encode(listenReady{Ready: true, ForwardTo: fwd.URL, Secret: fwd.Secret})
			return
		}
		_, told = fmt.Fprintf(e.out, "Forwarding the events of %s to %s.\nTheir secret is %s\n", fwd.Environment, fwd.URL, fwd.Secret)
	}
	var filter client.FeedFilter
	if len(fwd.Patterns) == 1 {
		filter.Type, filter.Event = fwd.Patterns[0].AggregateType, fwd.Patterns[0].EventType
	}
	sender := outbound.New(outbound.Options{Clock: clock.System{}, Private: true})
	for raw, err := range c.FollowReady(ctx, filter, after, ready) {
		if ctx.Err() != nil {
			return nil // which is how it ends
		}
		if err = errors.Join(err, told); err != nil {
			return err
		}
		m, ev, err := fwd.Message(raw)
		if err != nil {
			return fmt.Errorf("the server sent an event that cannot be read: %w", err)
		}
		if m == nil {
			continue
		}
		answer, err := sender.Send(ctx, *m)
		if ctx.Err() != nil {
			return nil
		}
		if err := tellForwarded(e, ev, answer.Status, err, asJSON); err != nil {
			return err
		}
	}
	return nil
}

// tellForwarded prints the outcome of forwarding an event.
func tellForwarded(e *env, ev *j17.Event, status int, failed error, asJSON bool) error {
	out := listened{StreamID: ev.StreamID.String(), Key: ev.Key.String(), Type: ev.Type, Status: status}
	if failed != nil {
		out.Error = failed.Error()
	}
	if asJSON {
		return json.NewEncoder(e.out).Encode(out)
	}
	result := fmt.Sprint(status)
	if status == 0 {
		result = out.Error
	}
	_, err := fmt.Fprintln(e.out, printable(fmt.Sprintf("%s  %s  %s  %s", out.StreamID, out.Key, out.Type, result)))
	return err
}

// listenFile is the file in a data folder that keeps the secret of 'j17 listen'.
const listenFile = "listen.secret"

// listenSecret returns the secret with which forwarded events are signed: that of the context, or of the data folder.
func listenSecret(e *env, s *connection) (string, error) {
	name := filepath.Join(s.folder, listenFile)
	if s.chosen != nil || !s.hasDev {
		file, err := e.configFile()
		if err != nil {
			return "", err
		}
		of := s.context.value
		if s.chosen == nil {
			of = s.url.value
		}
		name = filepath.Join(filepath.Dir(file), "listen", url.PathEscape(of)+".secret")
	}
	//nolint:gosec // in the folder of the user's own configuration, or in the data folder that he names
	raw, err := os.ReadFile(name)
	switch {
	case err == nil:
		return strings.TrimSpace(string(raw)), nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", unreadable(name, err)
	}
	secret := listener.NewSecret()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	return secret, os.WriteFile(name, []byte(secret+"\n"), 0o600)
}
